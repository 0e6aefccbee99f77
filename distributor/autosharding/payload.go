package autosharding

import (
	"sync"

	"google.golang.org/grpc"

	"github.com/slicer-project/slicer/assignment"
	autoshardingv1 "github.com/slicer-project/slicer/proto/autosharding/v1"
)

// payload is an assignment on its way: encoded and marshalled once, by whoever
// sends it first, and then shared byte for byte by all who send it.
type payload struct {
	a       *assignment.Assignment
	name    func(assignment.Task) string
	encoded func() // called with each encoding that is made

	once sync.Once
	msgs []*grpc.PreparedMsg
	size []int // of each message, bytes
	err  error
}

// send sends all of it. moved is called with the size of each message that the
// client's connection has taken.
func (p *payload) send(stream grpc.ServerStream, moved func(bytes int)) error {
	if !plain(stream) {
		return p.sendUnshared(stream, moved)
	}
	p.once.Do(func() { p.prepare(stream) })
	if p.err != nil {
		return p.err
	}
	for i, m := range p.msgs {
		if err := stream.SendMsg(m); err != nil {
			return err
		}
		moved(p.size[i])
	}
	return nil
}

func (p *payload) prepare(stream grpc.ServerStream) {
	p.encoded()
	for _, b := range encode(p.a, p.name) {
		var m grpc.PreparedMsg
		if p.err = m.Encode(stream, response(b)); p.err != nil {
			return
		}
		p.msgs, p.size = append(p.msgs, &m), append(p.size, len(b))
	}
}

func (p *payload) sendUnshared(stream grpc.ServerStream, moved func(bytes int)) error {
	p.encoded()
	for _, b := range encode(p.a, p.name) {
		if err := stream.SendMsg(response(b)); err != nil {
			return err
		}
		moved(len(b))
	}
	return nil
}

// response is a message that is encoded already: what is not known is sent as it is.
func response(encoded []byte) *autoshardingv1.WatchShardingAssignmentResponse {
	m := &autoshardingv1.WatchShardingAssignmentResponse{}
	m.ProtoReflect().SetUnknown(encoded)
	return m
}

// plain says whether what is prepared for one plain stream is good for another:
// a client that compresses, or speaks another codec, gets messages of its own.
// When that cannot be told it gets them too.
func plain(stream grpc.ServerStream) bool {
	s, ok := grpc.ServerTransportStreamFromContext(stream.Context()).(interface {
		SendCompress() string
		ContentSubtype() string
	})
	return ok && s.SendCompress() == "" && (s.ContentSubtype() == "" || s.ContentSubtype() == "proto")
}
