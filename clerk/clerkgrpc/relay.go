package clerkgrpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
)

// frame is a message as bytes. It is not changed once it is made: what is sent may be sent
// again.
type frame struct{ data []byte }

// rawCodec takes frames for messages. They are copied out of gRPC's buffers, which are of
// few sizes, up to 1 MiB, and are to be given back.
type rawCodec struct{}

// Marshal is encoding.CodecV2's.
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	f, ok := v.(*frame)
	if !ok {
		return nil, fmt.Errorf("clerkgrpc: the proxy sends bytes, not %T", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(f.data)}, nil
}

// Unmarshal is encoding.CodecV2's.
func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	f, ok := v.(*frame)
	if !ok {
		return fmt.Errorf("clerkgrpc: the proxy receives bytes, not %T", v)
	}
	f.data = data.Materialize()
	return nil
}

// Name is encoding.CodecV2's: none, so that the content-type has none but the client's.
func (rawCodec) Name() string { return "" }

// anyStream is of any RPC: who does not know better takes a unary one for a stream.
var anyStream = grpc.StreamDesc{ClientStreams: true, ServerStreams: true}

// relay passes an RPC on and returns how it ends.
func (p *Proxy) relay(ctx context.Context, in grpc.ServerStream, conn *grpc.ClientConn, method, subtype string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var opts []grpc.CallOption
	if subtype != "" {
		opts = []grpc.CallOption{grpc.CallContentSubtype(subtype)}
	}
	out, err := conn.NewStream(ctx, &anyStream, method, opts...)
	if err != nil {
		return err
	}
	p.rpcs.Go(func() {
		// It ends when the handler has returned, if not before.
		if err := up(in, out); err != nil {
			cancel(err)
		}
	})
	err = down(in, out)
	if fault := context.Cause(ctx); err != nil && fault != nil && in.Context().Err() == nil && !errors.Is(fault, context.DeadlineExceeded) {
		return fault // of what came from the client, such as a message that is too large
	}
	return err
}

// up passes on what the client sends. The error is that of receiving.
func up(in grpc.ServerStream, out grpc.ClientStream) error {
	for {
		f := new(frame)
		if err := in.RecvMsg(f); errors.Is(err, io.EOF) {
			_ = out.CloseSend() // it does not fail
			return nil
		} else if err != nil {
			return err
		}
		if out.SendMsg(f) != nil {
			return nil // it has ended, and down learns why
		}
	}
}

// down passes on what the task answers.
func down(in grpc.ServerStream, out grpc.ClientStream) error {
	headed := false
	head := func() error {
		md, _ := out.Header() // RecvMsg has the error
		if headed || len(md) == 0 {
			return nil
		}
		headed = true
		return in.SendHeader(inner(md))
	}
	// It comes before the first message if the task says so.
	if err := head(); err != nil {
		return err
	}
	for {
		f := new(frame)
		if err := out.RecvMsg(f); err != nil {
			in.SetTrailer(inner(out.Trailer()))
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if err := head(); err != nil {
			return err
		}
		if err := in.SendMsg(f); err != nil {
			return err
		}
	}
}

// inner takes out of metadata what is between Slicer's programs.
func inner(md metadata.MD) metadata.MD {
	for name := range md {
		switch {
		case strings.HasPrefix(name, "slicer-"), name == "slice-key", name == "content-type",
			strings.HasPrefix(name, "endpoint-load-metrics"): // gRFC A51
			delete(md, name)
		}
	}
	return md
}

// outgoing is the metadata that go to the task. It changes md.
func outgoing(md metadata.MD, req *http.Request, trusted bool) metadata.MD {
	inner(md)
	// gRPC sends its own.
	for _, name := range [...]string{":authority", "user-agent", "grpc-accept-encoding"} {
		delete(md, name)
	}
	if !trusted {
		for _, name := range [...]string{"forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto"} {
			delete(md, name)
		}
	}
	if host, _, err := net.SplitHostPort(req.RemoteAddr); err == nil {
		md["x-forwarded-for"] = []string{strings.Join(append(md["x-forwarded-for"], host), ", ")}
	}
	if len(md["x-forwarded-host"]) == 0 && req.Host != "" {
		md["x-forwarded-host"] = []string{req.Host}
	}
	if len(md["x-forwarded-proto"]) == 0 {
		md["x-forwarded-proto"] = []string{cmp.Or(req.URL.Scheme, "http")}
	}
	return md
}

// subtype is what a content-type says of messages, such as json of application/grpc+json.
func subtype(h http.Header) string {
	if v := h["Content-Type"]; len(v) > 0 {
		_, sub, _ := strings.Cut(v[0], "application/grpc")
		return strings.TrimLeft(sub, "+;")
	}
	return ""
}
