package crowdtest

import (
	"errors"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	protobuf "google.golang.org/protobuf/proto"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// heard is what a subscriber of the crowd makes of a WatchResponse: it counts the
// bytes of a chunk, without a copy of them, and decodes a trailer.
type heard struct {
	bytes   uint64
	trailer *slicerv1.Trailer
}

// codec is gRPC's own for protocol buffers, except that it decodes into a heard.
type codec struct{}

func (codec) Name() string { return proto.Name }

func (codec) Marshal(v any) (mem.BufferSlice, error) {
	return encoding.GetCodecV2(proto.Name).Marshal(v)
}

func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	h := v.(*heard)
	return fields(buf.ReadOnlyData(), func(num protowire.Number, value []byte) error {
		switch num {
		case 1: // chunk, of which data is the only field
			return fields(value, func(_ protowire.Number, data []byte) error {
				h.bytes += uint64(len(data))
				return nil
			})
		case 2: // trailer
			h.trailer = new(slicerv1.Trailer)
			return protobuf.Unmarshal(value, h.trailer)
		}
		return nil
	})
}

var errMalformed = errors.New("malformed message")

// fields calls do with each of the fields of a message, which are all of bytes.
func fields(b []byte, do func(protowire.Number, []byte) error) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 || typ != protowire.BytesType {
			return errMalformed
		}
		value, m := protowire.ConsumeBytes(b[n:])
		if m < 0 {
			return errMalformed
		}
		if err := do(num, value); err != nil {
			return err
		}
		b = b[n+m:]
	}
	return nil
}
