package distributor_test

import (
	"log"
	"net"

	"google.golang.org/grpc"

	"github.com/slicer-project/slicer/distributor"
)

// A process that is one Distributor.
func ExampleNew() {
	d, err := distributor.New(distributor.Config{Assigners: []string{"assigner-1:7100", "assigner-2:7100"}})
	if err != nil {
		log.Fatal(err)
	}
	defer d.Close()
	server := grpc.NewServer(distributor.ServerOptions()...)
	d.Register(server)
	l, err := net.Listen("tcp", ":7200")
	if err != nil {
		log.Fatal(err)
	}
	log.Print(server.Serve(d.Admit(l)))
}
