package run

import (
	"io"
	"net"

	"google.golang.org/grpc/credentials"
)

// Port is a process that has begun and holds the gRPC port of its --listen, where it
// does not serve yet.
type Port struct {
	*Process
	// Listener is the caller's to close.
	Listener net.Listener
	// Credentials are what is served with.
	Credentials credentials.TransportCredentials
	// Advertised is how others reach the port, host:port.
	Advertised string
	// ID names the process among its like.
	ID string
}

// Open is what a server process with a gRPC port begins with: Start, and the port. On
// an error nothing is left open.
func Open(name string, f *Flags, errs io.Writer) (*Port, error) {
	if err := f.Validate(); err != nil {
		return nil, err
	}
	if err := f.CheckPlain("--listen", f.Listen); err != nil {
		return nil, err
	}
	p, err := Start(name, f, errs)
	if err != nil {
		return nil, err
	}
	port := &Port{Process: p}
	if err := port.bind(f); err != nil {
		p.Close()
		return nil, err
	}
	return port, nil
}

func (p *Port) bind(f *Flags) (err error) {
	if p.Credentials, err = f.TLS.Server(); err != nil {
		return err
	}
	if p.Listener, err = Listen("--listen", f.Listen); err != nil {
		return err
	}
	if p.Advertised, err = f.Advertised(p.Listener.Addr()); err != nil {
		p.Listener.Close()
		return err
	}
	p.ID = f.Identity(p.Advertised)
	return nil
}
