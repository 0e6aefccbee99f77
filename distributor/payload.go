package distributor

import (
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/distributor/internal/prepared"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// payload is a sequence of responses that is encoded and marshalled once, by
// whoever sends it first, and then shared byte for byte by all who send it.
type payload struct{ messages *prepared.Messages }

// errEncode is matched when a payload could not be built; nothing was sent.
var errEncode = prepared.ErrBuild

// framePayload is an assignment on its way, whole or as a delta. encoded is
// called with each encoding that is made.
func framePayload(frame func() (*wire.Frame, error), encoded func()) *payload {
	return &payload{prepared.New(func() (msgs []proto.Message, err error) {
		f, err := frame()
		if err != nil {
			return nil, err
		}
		encoded()
		for m := range f.Responses() {
			msgs = append(msgs, m)
		}
		return msgs, nil
	})}
}

// statusPayload is a status, made when it is first sent.
func statusPayload(status func() *slicerv1.Status) *payload {
	return &payload{prepared.New(func() ([]proto.Message, error) {
		return []proto.Message{&slicerv1.WatchResponse{Message: &slicerv1.WatchResponse_Status{Status: status()}}}, nil
	})}
}

// send sends all of it and returns how many bytes that is. An error that matches
// errEncode leaves the stream as it was.
func (p *payload) send(stream grpc.ServerStream) (size int, err error) {
	err = p.messages.Send(stream, func(bytes int) { size += bytes })
	return size, err
}
