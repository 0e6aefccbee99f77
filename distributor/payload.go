package distributor

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"google.golang.org/grpc"

	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// payload is a sequence of responses that is encoded and marshalled once, by
// whoever sends it first, and then shared byte for byte by all who send it.
type payload struct {
	build func() ([]*slicerv1.WatchResponse, error)
	once  sync.Once
	msgs  []*grpc.PreparedMsg
	size  int // bytes in chunks
	err   error
}

// errEncode is matched when a payload could not be built; nothing was sent.
var errEncode = errors.New("encoding failed")

// framePayload is an assignment on its way, whole or as a delta. encoded is
// called with each encoding that is made.
func framePayload(frame func() (*wire.Frame, error), encoded func()) *payload {
	return &payload{build: func() ([]*slicerv1.WatchResponse, error) {
		f, err := frame()
		if err != nil {
			return nil, err
		}
		encoded()
		return slices.Collect(f.Responses()), nil
	}}
}

func statusPayload(s *slicerv1.Status) *payload {
	return &payload{build: func() ([]*slicerv1.WatchResponse, error) {
		return []*slicerv1.WatchResponse{{Message: &slicerv1.WatchResponse_Status{Status: s}}}, nil
	}}
}

// send sends all of it and returns the bytes in chunks. An error that matches
// errEncode leaves the stream as it was.
func (p *payload) send(stream grpc.ServerStream) (size int, err error) {
	if !plain(stream) {
		return p.sendUnshared(stream)
	}
	p.once.Do(func() { p.prepare(stream) })
	if p.err != nil {
		return 0, p.err
	}
	for _, m := range p.msgs {
		if err := stream.SendMsg(m); err != nil {
			return 0, err
		}
	}
	return p.size, nil
}

func (p *payload) prepare(stream grpc.ServerStream) {
	msgs, err := p.build()
	for _, m := range msgs {
		var pm grpc.PreparedMsg
		if err == nil {
			err = pm.Encode(stream, m)
		}
		p.size += len(m.GetChunk().GetData())
		p.msgs = append(p.msgs, &pm)
	}
	if err != nil {
		p.err = fmt.Errorf("%w: %w", errEncode, err)
	}
}

func (p *payload) sendUnshared(stream grpc.ServerStream) (size int, err error) {
	msgs, err := p.build()
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errEncode, err)
	}
	for _, m := range msgs {
		if err := stream.SendMsg(m); err != nil {
			return 0, err
		}
		size += len(m.GetChunk().GetData())
	}
	return size, nil
}

// plain says whether what is prepared for one plain stream is good for another:
// a subscriber that compresses, or speaks another codec, gets messages of its
// own. When that cannot be told it gets them too.
func plain(stream grpc.ServerStream) bool {
	s, ok := grpc.ServerTransportStreamFromContext(stream.Context()).(interface {
		SendCompress() string
		ContentSubtype() string
	})
	return ok && s.SendCompress() == "" && (s.ContentSubtype() == "" || s.ContentSubtype() == "proto")
}
