package certs_test

import (
	"log/slog"

	"github.com/slicer-project/slicer/assignment/certs"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/slicelet"
)

// One certificate for all connections of a program to Slicer's servers. Whatever renews the
// files, nothing has to be restarted.
func Example() {
	tls, err := certs.New(certs.Config{
		Cert: "/etc/slicer/tls.crt", Key: "/etc/slicer/tls.key", CA: "/etc/slicer/ca.crt", Logger: slog.Default(),
	})
	if err != nil {
		slog.Error("no certificate", "error", err)
		return
	}
	servers := []string{"slicer-1.example:4720", "slicer-2.example:4720"}
	s, err := slicelet.New(slicelet.Config{
		Job: "cache", Task: "cache-3", Address: "10.1.2.3:8080", Distributors: servers, DialOptions: tls.DialOptions(),
	})
	if err != nil {
		slog.Error("no slicelet", "error", err)
		return
	}
	defer s.Close()
	c, err := clerk.New(clerk.Config{Job: "cache", Distributors: servers, DialOptions: tls.DialOptions()})
	if err != nil {
		slog.Error("no clerk", "error", err)
		return
	}
	defer c.Close()
}
