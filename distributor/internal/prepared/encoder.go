package prepared

import (
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
)

// Encoder returns what makes the messages that bring a subscriber from a base to an
// assignment, or to a whole one if the base is nil, which may be compressed. Both may be
// parts. They are encoded once, by the first
// that sends them, for subscribers and for the second tier, which are sent the same frame
// in different messages. encoded is told of each encoding that is made.
func Encoder(encoded func(kind string)) func(base, a *assignment.Assignment, compressed bool) *Messages {
	return func(base, a *assignment.Assignment, compressed bool) *Messages {
		frame := sync.OnceValues(func() (f *wire.Frame, err error) {
			kind := "delta"
			if a.Part() != "" {
				kind = "part"
				f, err = wire.PartFrame(base, a)
			} else if base == nil {
				kind = "whole"
				if f, err = wire.WholeFrame(a); err == nil && compressed {
					kind, f = "compressed", f.Compressed()
				}
			} else {
				f, err = wire.DeltaFrame(base, a)
			}
			if err == nil {
				encoded(kind)
			}
			return f, err
		})
		return New(func() (msgs []proto.Message, err error) {
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
