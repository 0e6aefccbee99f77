package overload

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/slicelet/sliceletgrpc"
	"github.com/slicer-project/slicer/test/examples/greeter/hello"
	"github.com/slicer-project/slicer/test/kit/bed"
)

// empty answers at once.
type empty struct{ hello.Greeter }

func (empty) SayHello(_ context.Context, in *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
	return in, nil
}

// BenchmarkHealthy is an empty RPC to servers with and without admission, client and server
// together, with all there is of CPU: 1.03 in time is the limit, and no allocation more.
//
//	go test ./test/bench/overload -run '^$' -bench Healthy -count 10 | benchstat -col /server -
func BenchmarkHealthy(b *testing.B) {
	plane := bed.Start(b, bed.Config{})
	cfg := assignment.JobConfig{Name: "healthy", Overload: assignment.OverloadConfig{Admission: assignment.AdmissionOn}}
	if err := plane.PutJob(b.Context(), cfg.WithDefaults()); err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		noTap bool
	}{{"without", true}, {"with", false}} {
		lis := bed.Listen(b)
		s, err := slicelet.New(slicelet.Config{Job: "healthy", Task: c.name, Address: lis.Addr().String(), Distributors: plane.Addrs()})
		if err != nil {
			b.Fatal(err)
		}
		bed.Serve(b, lis, func(r grpc.ServiceRegistrar) { hello.RegisterGreeterServer(r, empty{}) }, s.Close, sliceletgrpc.ServerOptions(s, sliceletgrpc.Config{NoTap: c.noTap})...)
		conn, err := grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			b.Fatal(err)
		}
		bed.CloseAtEnd(b, conn.Close)
		stub := hello.NewGreeterClient(conn)
		in := wrapperspb.String("x")
		b.Run("server="+c.name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := stub.SayHello(context.Background(), in); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
