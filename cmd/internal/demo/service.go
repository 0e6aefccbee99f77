package demo

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// The toy service: Get(key) answers with a set of flags instead of a value,
// since the value is of no interest here.
const (
	methodGet = "/slicer.demo.Cache/Get"
	// loadHeader carries the load of a call that is not 1.
	loadHeader = "slicer-demo-load"
)

const (
	flagHit   = 1 << iota // the cache had the key
	flagOwned             // the task owns the key
)

// getter is what the service is made of.
type getter interface {
	get(ctx context.Context, key string) (flags uint32, err error)
}

var cacheService = grpc.ServiceDesc{
	ServiceName: "slicer.demo.Cache",
	HandlerType: (*getter)(nil),
	Methods: []grpc.MethodDesc{{
		MethodName: "Get",
		Handler: func(srv any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
			var key wrapperspb.StringValue
			if err := decode(&key); err != nil {
				return nil, err
			}
			get := func(ctx context.Context, _ any) (any, error) {
				flags, err := srv.(getter).get(ctx, key.Value)
				return wrapperspb.UInt32(flags), err
			}
			if intercept == nil {
				return get(ctx, nil)
			}
			return intercept(ctx, &key, &grpc.UnaryServerInfo{Server: srv, FullMethod: methodGet}, get)
		},
	}},
}
