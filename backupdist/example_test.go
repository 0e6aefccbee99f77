package backupdist_test

import (
	"log"
	"net"

	"google.golang.org/grpc"

	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/backupdist"
)

// A process that answers from a store that it has opened.
func ExampleServer() {
	serve := func(opened store.Store) error {
		s, err := backupdist.New(backupdist.Config{Store: opened})
		if err != nil {
			return err
		}
		defer s.Close()
		server := grpc.NewServer(backupdist.ServerOptions()...)
		s.Register(server)
		l, err := net.Listen("tcp", ":7300")
		if err != nil {
			return err
		}
		return server.Serve(s.Admit(l))
	}
	log.Printf("%T", serve)
}
