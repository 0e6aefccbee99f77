// Package hello is the service that the greeter programs serve and call: what
// protoc would make of
//
//	service Greeter {
//	  rpc SayHello (google.protobuf.StringValue) returns (google.protobuf.StringValue);
//	  rpc SayHellos (google.protobuf.StringValue) returns (stream google.protobuf.StringValue);
//	}
//
// It knows nothing of Slicer.
package hello

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// The full names of the methods.
const (
	SayHelloMethod  = "/hello.Greeter/SayHello"
	SayHellosMethod = "/hello.Greeter/SayHellos"
)

// GreeterServer is what a server of the service does.
type GreeterServer interface {
	SayHello(ctx context.Context, name *wrapperspb.StringValue) (*wrapperspb.StringValue, error)
	SayHellos(name *wrapperspb.StringValue, stream grpc.ServerStreamingServer[wrapperspb.StringValue]) error
}

// UnaryGreeterServer is for servers to embed that have no SayHellos.
type UnaryGreeterServer struct{}

// SayHellos fails with UNIMPLEMENTED.
func (UnaryGreeterServer) SayHellos(*wrapperspb.StringValue, grpc.ServerStreamingServer[wrapperspb.StringValue]) error {
	return status.Error(codes.Unimplemented, "")
}

// GreeterClient is the service as its clients see it.
type GreeterClient interface {
	SayHello(ctx context.Context, name *wrapperspb.StringValue, opts ...grpc.CallOption) (*wrapperspb.StringValue, error)
	SayHellos(ctx context.Context, name *wrapperspb.StringValue, opts ...grpc.CallOption) (grpc.ServerStreamingClient[wrapperspb.StringValue], error)
}

type client struct{ cc grpc.ClientConnInterface }

// NewGreeterClient returns a client on a connection.
func NewGreeterClient(cc grpc.ClientConnInterface) GreeterClient { return client{cc} }

func (c client) SayHello(ctx context.Context, name *wrapperspb.StringValue, opts ...grpc.CallOption) (*wrapperspb.StringValue, error) {
	out := new(wrapperspb.StringValue)
	if err := c.cc.Invoke(ctx, SayHelloMethod, name, out, opts...); err != nil {
		return nil, err
	}
	return out, nil
}

func (c client) SayHellos(ctx context.Context, name *wrapperspb.StringValue, opts ...grpc.CallOption) (grpc.ServerStreamingClient[wrapperspb.StringValue], error) {
	cs, err := c.cc.NewStream(ctx, &service.Streams[0], SayHellosMethod, opts...)
	if err != nil {
		return nil, err
	}
	s := &grpc.GenericClientStream[wrapperspb.StringValue, wrapperspb.StringValue]{ClientStream: cs}
	if err := s.SendMsg(name); err != nil {
		return nil, err
	}
	return s, s.CloseSend()
}

// RegisterGreeterServer adds the service to a server.
func RegisterGreeterServer(r grpc.ServiceRegistrar, s GreeterServer) { r.RegisterService(&service, s) }

var service = grpc.ServiceDesc{
	ServiceName: "hello.Greeter",
	HandlerType: (*GreeterServer)(nil),
	Methods: []grpc.MethodDesc{{
		MethodName: "SayHello",
		Handler: func(srv any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
			in := new(wrapperspb.StringValue)
			if err := decode(in); err != nil {
				return nil, err
			}
			handle := func(ctx context.Context, in any) (any, error) {
				return srv.(GreeterServer).SayHello(ctx, in.(*wrapperspb.StringValue))
			}
			if intercept == nil {
				return handle(ctx, in)
			}
			return intercept(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: SayHelloMethod}, handle)
		},
	}},
	Streams: []grpc.StreamDesc{{
		StreamName:    "SayHellos",
		ServerStreams: true,
		Handler: func(srv any, stream grpc.ServerStream) error {
			in := new(wrapperspb.StringValue)
			if err := stream.RecvMsg(in); err != nil {
				return err
			}
			return srv.(GreeterServer).SayHellos(in, &grpc.GenericServerStream[wrapperspb.StringValue, wrapperspb.StringValue]{ServerStream: stream})
		},
	}},
}

// Greeter is the service.
type Greeter struct{ From string }

// SayHello greets.
func (g Greeter) SayHello(_ context.Context, name *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
	return wrapperspb.String(fmt.Sprintf("hello %s, this is %s", name.GetValue(), g.From)), nil
}

// SayHellos greets three times.
func (g Greeter) SayHellos(name *wrapperspb.StringValue, stream grpc.ServerStreamingServer[wrapperspb.StringValue]) error {
	for range 3 {
		if err := stream.Send(wrapperspb.String("hello " + name.GetValue())); err != nil {
			return err
		}
	}
	return nil
}
