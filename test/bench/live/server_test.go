package live

import (
	"context"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/test/kit/bed"
)

const methodTouch = "/slicer.live.Service/Touch"

// server counts the requests that reach it.
type server struct {
	name     string
	requests atomic.Int64
	slicelet *slicelet.Slicelet
}

func startServer(tb testing.TB, name, distributorAddr string) *server {
	tb.Helper()
	lis := bed.Listen(tb)
	s := &server{name: name}
	var err error
	s.slicelet, err = slicelet.New(slicelet.Config{
		Job: job, Task: name, Address: lis.Addr().String(), Distributors: []string{distributorAddr},
	})
	if err != nil {
		tb.Fatal(err)
	}
	bed.Serve(tb, lis, func(r grpc.ServiceRegistrar) { r.RegisterService(&service, s) }, s.slicelet.Close)
	return s
}

// touch is a request, the least that one can be. Any server that is asked answers, as in
// affinity mode every server may.
func (s *server) touch(key string) {
	s.slicelet.Handle(key)
	s.requests.Add(1)
}

type toucher interface{ touch(key string) }

var service = grpc.ServiceDesc{
	ServiceName: "slicer.live.Service",
	HandlerType: (*toucher)(nil),
	Methods: []grpc.MethodDesc{{
		MethodName: "Touch",
		Handler: func(srv any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			var key wrapperspb.StringValue
			if err := decode(&key); err != nil {
				return nil, err
			}
			srv.(toucher).touch(key.Value)
			return &emptypb.Empty{}, nil
		},
	}},
}
