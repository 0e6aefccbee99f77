package distributor

import (
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/distributor/fanout"
	"github.com/slicer-project/slicer/distributor/internal/prepared"
)

// encoderOf returns what makes the messages that bring a subscriber from a base to an
// assignment, or to a whole one if the base is nil. They are encoded once, by whoever
// sends them first, for subscribers and for the second tier, which are sent the same
// frame in different messages. encoded is told of each encoding that is made.
func encoderOf(encoded func(kind string)) func(base, a *assignment.Assignment) *prepared.Messages {
	return func(base, a *assignment.Assignment) *prepared.Messages {
		frame := sync.OnceValues(func() (f *wire.Frame, err error) {
			kind := fanout.KindDelta
			if base == nil {
				kind = fanout.KindWhole
				f, err = wire.WholeFrame(a)
			} else {
				f, err = wire.DeltaFrame(base, a)
			}
			if err == nil {
				encoded(kind)
			}
			return f, err
		})
		return prepared.New(func() (msgs []proto.Message, err error) {
			f, err := frame()
			if err != nil {
				return nil, err
			}
			for m := range f.Responses() {
				msgs = append(msgs, m)
			}
			return msgs, nil
		})
	}
}

// send sends all of the messages and returns how many bytes that is. An error that
// matches prepared.ErrBuild leaves the stream as it was.
func send(p *prepared.Messages, stream grpc.ServerStream) (size int, err error) {
	err = p.Send(stream, func(bytes int) { size += bytes })
	return size, err
}
