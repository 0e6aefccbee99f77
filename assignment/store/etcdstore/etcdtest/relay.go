package etcdtest

import (
	"io"
	"net"
	"sync"
	"testing"
)

// Relay passes connections on to an etcd, and to another one once it is told to.
type Relay struct {
	lis net.Listener
	wg  sync.WaitGroup

	mu    sync.Mutex
	to    string // refused if empty
	conns map[net.Conn]struct{}
}

// NewRelay starts a relay to a host:port, and stops it when the test ends.
func NewRelay(t testing.TB, to string) *Relay {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &Relay{lis: lis, to: to, conns: map[net.Conn]struct{}{}}
	r.wg.Go(r.accept)
	t.Cleanup(func() {
		lis.Close()
		r.Target("")
		r.wg.Wait()
	})
	return r
}

// Address is where it listens, host:port.
func (r *Relay) Address() string { return r.lis.Addr().String() }

// Target cuts all connections. New ones are passed on to the host:port, or refused
// if there is none.
func (r *Relay) Target(to string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.to = to
	for c := range r.conns {
		c.Close()
	}
	clear(r.conns)
}

func (r *Relay) accept() {
	for {
		in, err := r.lis.Accept()
		if err != nil {
			return
		}
		r.mu.Lock()
		to := r.to
		r.mu.Unlock()
		var out net.Conn
		if to != "" {
			out, err = net.Dial("tcp", to)
		}
		if out == nil || err != nil {
			in.Close()
			continue
		}
		r.mu.Lock()
		current := r.to == to
		if current {
			r.conns[in], r.conns[out] = struct{}{}, struct{}{}
		}
		r.mu.Unlock()
		if !current {
			in.Close()
			out.Close()
			continue
		}
		for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
			r.wg.Go(func() {
				_, _ = io.Copy(pair[0], pair[1])
				pair[0].Close()
				pair[1].Close()
			})
		}
	}
}
