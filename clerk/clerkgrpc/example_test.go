package clerkgrpc_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/clerkgrpc"
	"github.com/slicer-project/slicer/test/examples/greeter/hello"
)

func Example() {
	routed := clerkgrpc.DialOptions(clerkgrpc.Config{HealthCheck: true, Clerk: clerk.Config{Distributors: []string{"slicer:4720"}}})
	conn, err := grpc.NewClient("slicer:///greeter", append(routed, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()

	client := hello.NewGreeterClient(conn)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	reply, err := client.SayHello(clerk.WithKey(ctx, "user/4711"), wrapperspb.String("world"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(reply.Value)
}

// The key may be in the request, and RPCs without one may go to any task.
func ExampleDialOptions() {
	of := func(method string, request any) (string, bool) {
		name, ok := request.(*wrapperspb.StringValue)
		return name.GetValue(), ok
	}
	cfg := clerkgrpc.Config{
		Clerk:   clerk.Config{Distributors: []string{"slicer:4720"}, Subset: clerk.SubsetConfig{Size: 20}},
		Key:     of,
		Keyless: clerkgrpc.AnyTask,
	}
	if err := cfg.Validate(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(clerkgrpc.DialOptions(cfg)) > 0)
	// Output: true
}
