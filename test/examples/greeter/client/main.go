// Command client has people greeted, each by the server that owns the name.
package main

import (
	"context"
	"flag"
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

func main() {
	slicer := flag.String("slicer", "127.0.0.1:4720", "a Distributor, host:port")
	flag.Parse()
	routed := clerkgrpc.DialOptions(clerkgrpc.Config{HealthCheck: true, Clerk: clerk.Config{Distributors: []string{*slicer}}})
	conn, err := grpc.NewClient("slicer:///greeter", append(routed, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	client := hello.NewGreeterClient(conn)
	for _, name := range flag.Args() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		reply, err := client.SayHello(clerk.WithKey(ctx, name), wrapperspb.String(name))
		cancel()
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(reply.Value)
	}
}
