// Package autoshardingtest is a client of gRPC's auto-sharding protocol for tests.
// It is written from the protocol's description alone, down to the bytes: it
// shares neither generated code nor an encoder with what it tests.
package autoshardingtest

import (
	"context"
	"fmt"
	"math"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// method is the one call of the protocol.
const method = "/google.cloud.autosharding.v1.AutoshardingService/WatchShardingAssignment"

// raw is a codec for messages that are bytes already.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

var _ encoding.CodecV2 = raw{}

// Client is one stream. Send and Next may be called by two goroutines, each by one
// at a time.
type Client struct {
	stream grpc.ClientStream
	cancel context.CancelFunc
	latest int64
	chunks []chunk
	sizes  []int
	// configs are LoadReportingConfigs as they were sent.
	configs [][]byte
}

// Configs are the LoadReportingConfigs that have come so far, encoded, as Next has
// passed over them.
func (c *Client) Configs() [][]byte { return c.configs }

// Open opens a stream and says nothing. It ends with ctx, or Close.
func Open(ctx context.Context, cc grpc.ClientConnInterface, opts ...grpc.CallOption) (*Client, error) {
	ctx, cancel := context.WithCancel(ctx)
	desc := &grpc.StreamDesc{StreamName: "WatchShardingAssignment", ClientStreams: true, ServerStreams: true}
	stream, err := cc.NewStream(ctx, desc, method, append([]grpc.CallOption{grpc.ForceCodecV2(raw{}), grpc.MaxCallRecvMsgSize(1<<20 - 1)}, opts...)...)
	if err != nil {
		cancel()
		return nil, err
	}
	return &Client{stream: stream, cancel: cancel}, nil
}

// Watch opens a stream and introduces the client: the newest generation that it has is 0
// if it has none.
func Watch(ctx context.Context, cc grpc.ClientConnInterface, target, uuid string, latest int64, opts ...grpc.CallOption) (*Client, error) {
	c, err := Open(ctx, cc, opts...)
	if err != nil {
		return nil, err
	}
	c.latest = latest
	c.Send(Initial(target, uuid, latest))
	return c, nil
}

// Close ends the stream.
func (c *Client) Close() { c.cancel() }

// Send sends a request; an error shows in the next Next.
func (c *Client) Send(request []byte) { c.stream.SendMsg(&request) }

// CloseSend says that nothing more is to come.
func (c *Client) CloseSend() { c.stream.CloseSend() }

// Ack accepts a generation, with a remark if that is not empty.
func (c *Client) Ack(generation int64, remark string) { c.Send(Answer(generation, true, remark)) }

// Nack refuses a generation.
func (c *Client) Nack(generation int64, why string) { c.Send(Answer(generation, false, why)) }

// Initial is the first message.
func Initial(target, uuid string, latest int64) []byte {
	var b []byte
	b = appendString(b, 1, target)
	b = appendString(b, 2, uuid)
	return message(1, appendInt(b, 3, latest))
}

// Answer is an acknowledgement.
func Answer(generation int64, accepted bool, text string) []byte {
	var b []byte
	b = appendInt(b, 1, generation)
	if accepted {
		b = appendInt(b, 2, 1)
	}
	return message(3, appendString(b, 3, text))
}

// Load is the load of one range of keys, which ends where the next begins.
type Load struct {
	Start string
	Load  float64
}

// Report is a load report of one metric.
func Report(metric string, start, end time.Time, loads ...Load) []byte {
	var ranges []byte
	for _, l := range loads {
		r := appendString(nil, 1, l.Start)
		r = protowire.AppendTag(r, 2, protowire.Fixed64Type)
		r = protowire.AppendFixed64(r, math.Float64bits(l.Load))
		ranges = appendBytes(ranges, 1, r)
	}
	entry := appendBytes(appendString(nil, 1, metric), 2, ranges)
	b := appendBytes(nil, 1, entry)
	b = appendBytes(b, 2, timestamp(start))
	return message(2, appendBytes(b, 3, timestamp(end)))
}

func timestamp(t time.Time) []byte {
	return appendInt(appendInt(nil, 1, t.Unix()), 2, int64(t.Nanosecond()))
}

func message(field protowire.Number, body []byte) []byte { return appendBytes(nil, field, body) }

func appendBytes(b []byte, field protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), v)
}

func appendString(b []byte, field protowire.Number, v string) []byte {
	if v == "" {
		return b
	}
	return appendBytes(b, field, []byte(v))
}

func appendInt(b []byte, field protowire.Number, v int64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), uint64(v))
}

// Next waits for a whole assignment. It neither answers it nor judges it: see
// Assignment.Fill. The error is the stream's, or says what is wrong with a message.
func (c *Client) Next() (*Assignment, error) {
	for {
		var b []byte
		if err := c.stream.RecvMsg(&b); err != nil {
			return nil, err
		}
		a, err := c.take(b)
		if a != nil || err != nil {
			return a, err
		}
	}
}

// Skim is Next for crowds: it looks at nothing but the generation.
func (c *Client) Skim() (generation int64, err error) {
	for generation == 0 {
		var b []byte
		if err := c.stream.RecvMsg(&b); err != nil {
			return 0, err
		}
		if field, _, n := protowire.ConsumeTag(b); n < 0 || field != 3 {
			continue
		}
		a, err := c.take(b)
		if err != nil {
			return 0, err
		}
		generation = a.Generation
	}
	return generation, nil
}

// take takes a response.
func (c *Client) take(b []byte) (*Assignment, error) {
	c.sizes = append(c.sizes, len(b))
	var a *Assignment
	set := 0
	err := fields(b, func(f protowire.Number, v value) error {
		set++
		switch f {
		case 1: // how load is to be reported, which clients ignore
			c.sizes = c.sizes[:len(c.sizes)-1]
			c.configs = append(c.configs, v.bytes)
		case 2:
			k, err := parseChunk(v.bytes)
			c.chunks = append(c.chunks, k)
			return err
		case 3:
			a = &Assignment{Sizes: c.sizes, Chunks: len(c.chunks)}
			if err := fields(v.bytes, func(f protowire.Number, v value) error {
				if f == 1 {
					a.Generation = int64(v.number)
				}
				return nil
			}); err != nil {
				return err
			}
			a.join(c.chunks)
			c.chunks, c.sizes = nil, nil
		default:
			return fmt.Errorf("field %d of a response", f)
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case set != 1:
		return nil, fmt.Errorf("%d fields of a response are set, want one", set)
	case a != nil && a.Generation <= c.latest:
		return nil, fmt.Errorf("generation %d after %d", a.Generation, c.latest)
	case a != nil:
		c.latest = a.Generation
	}
	return a, nil
}
