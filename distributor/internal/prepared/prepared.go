// Package prepared sends the same messages to many streams of one server, built
// and marshalled once.
package prepared

import (
	"errors"
	"fmt"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// ErrBuild is matched when the messages could not be built; nothing was sent.
var ErrBuild = errors.New("encoding failed")

// Messages are built and marshalled by the first that sends them, and then shared byte
// for byte by all that send them. Safe for concurrent use.
type Messages struct {
	build func() ([]proto.Message, error)
	once  sync.Once
	msgs  []*grpc.PreparedMsg
	sizes []int // of the messages, bytes
	err   error

	local    sync.Once
	built    []proto.Message
	localErr error
}

// Local is a stream that takes messages as they are, to be read only, since its
// other end is in this process.
type Local interface{ Local() }

// New makes messages of what build returns, when they are first needed. Build may
// be called more than once, and concurrently.
func New(build func() ([]proto.Message, error)) *Messages { return &Messages{build: build} }

// Later makes the messages of those that m makes when they are first needed.
func Later(m func() *Messages) *Messages {
	m = sync.OnceValue(m)
	return New(func() ([]proto.Message, error) { return m().build() })
}

// Send sends all of them. sent is told the size of each message, bytes, once the
// stream has taken it; it may be nil. An error that matches ErrBuild leaves the
// stream as it was.
func (p *Messages) Send(stream grpc.ServerStream, sent func(bytes int)) error {
	if sent == nil {
		sent = func(int) {}
	}
	if _, ok := stream.(Local); ok {
		return p.sendLocal(stream, sent)
	}
	if !plain(stream) {
		return p.sendUnshared(stream, sent)
	}
	p.once.Do(func() { p.prepare(stream) })
	if p.err != nil {
		return p.err
	}
	for i, m := range p.msgs {
		if err := stream.SendMsg(m); err != nil {
			return err
		}
		sent(p.sizes[i])
	}
	return nil
}

func (p *Messages) prepare(stream grpc.ServerStream) {
	msgs, err := p.build()
	for _, m := range msgs {
		var pm grpc.PreparedMsg
		if err == nil {
			err = pm.Encode(stream, m)
		}
		p.msgs, p.sizes = append(p.msgs, &pm), append(p.sizes, proto.Size(m))
	}
	if err != nil {
		p.msgs, p.err = nil, fmt.Errorf("%w: %w", ErrBuild, err)
	}
}

func (p *Messages) sendLocal(stream grpc.ServerStream, sent func(bytes int)) error {
	p.local.Do(func() { p.built, p.localErr = p.build() })
	if p.localErr != nil {
		return fmt.Errorf("%w: %w", ErrBuild, p.localErr)
	}
	for _, m := range p.built {
		if err := stream.SendMsg(m); err != nil {
			return err
		}
		sent(0) // nothing is marshalled
	}
	return nil
}

func (p *Messages) sendUnshared(stream grpc.ServerStream, sent func(bytes int)) error {
	msgs, err := p.build()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrBuild, err)
	}
	for _, m := range msgs {
		if err := stream.SendMsg(m); err != nil {
			return err
		}
		sent(proto.Size(m))
	}
	return nil
}

// plain reports whether what is prepared for one plain stream is good for another: a
// client that compresses, or speaks another codec, gets messages of its own. When that
// cannot be told it gets them too.
func plain(stream grpc.ServerStream) bool {
	s, ok := grpc.ServerTransportStreamFromContext(stream.Context()).(interface {
		SendCompress() string
		ContentSubtype() string
	})
	return ok && s.SendCompress() == "" && (s.ContentSubtype() == "" || s.ContentSubtype() == "proto")
}
