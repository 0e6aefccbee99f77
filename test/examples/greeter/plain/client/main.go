// Command client has people greeted. It is the program before it was sharded.
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

	"github.com/slicer-project/slicer/test/examples/greeter/hello"
)

func main() {
	server := flag.String("server", "127.0.0.1:50051", "the server, host:port")
	flag.Parse()
	conn, err := grpc.NewClient(*server, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	client := hello.NewGreeterClient(conn)
	for _, name := range flag.Args() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		reply, err := client.SayHello(ctx, wrapperspb.String(name))
		cancel()
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(reply.Value)
	}
}
