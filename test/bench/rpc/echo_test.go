package rpc

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"
)

// echo is a service with one unary method and one of streams, whose messages have a string, the
// key, and bytes. It answers with what it was sent.
type echo interface {
	Unary(context.Context, *anypb.Any) (*anypb.Any, error)
	Stream(grpc.ServerStream) error
}

const (
	unaryMethod  = "/bench.Echo/Unary"
	streamMethod = "/bench.Echo/Stream"
	// keyField is the path of the field with the key.
	keyField = "type_url"
)

var echoService = grpc.ServiceDesc{
	ServiceName: "bench.Echo",
	HandlerType: (*echo)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "Unary", Handler: func(srv any, ctx context.Context, dec func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
		in := new(anypb.Any)
		if err := dec(in); err != nil {
			return nil, err
		}
		if interceptor == nil {
			return srv.(echo).Unary(ctx, in)
		}
		return interceptor(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: unaryMethod}, func(ctx context.Context, in any) (any, error) {
			return srv.(echo).Unary(ctx, in.(*anypb.Any))
		})
	}}},
	Streams: []grpc.StreamDesc{{StreamName: "Stream", ServerStreams: true, ClientStreams: true, Handler: func(srv any, s grpc.ServerStream) error {
		return srv.(echo).Stream(s)
	}}},
}

type echoServer struct{}

func (echoServer) Unary(_ context.Context, in *anypb.Any) (*anypb.Any, error) { return in, nil }

func (echoServer) Stream(s grpc.ServerStream) error {
	in := new(anypb.Any)
	if err := s.RecvMsg(in); err != nil {
		return err
	}
	return s.SendMsg(in)
}
