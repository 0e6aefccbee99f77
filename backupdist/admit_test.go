package backupdist

import (
	"context"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// front is a gRPC server behind Admit, to which connections come from addresses that the
// test names.
type front struct {
	*bufconn.Listener
	t    *testing.T
	from chan string
}

type fromConn struct {
	net.Conn
	from net.Addr
}

func (c fromConn) RemoteAddr() net.Addr { return c.from }

func (f *front) Accept() (net.Conn, error) {
	c, err := f.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return fromConn{c, &net.TCPAddr{IP: net.ParseIP(<-f.from), Port: 7}}, nil
}

func newFront(t *testing.T, m *memStore) *front {
	s, err := New(Config{Store: m})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	f := &front{bufconn.Listen(1 << 16), t, make(chan string, 1)}
	g := grpc.NewServer(ServerOptions()...)
	s.Register(g)
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.Serve(s.Admit(f))
	}()
	t.Cleanup(func() { g.Stop(); <-done })
	return f
}

// dial connects from an address, and sends what is given.
func (f *front) dial(from, says string) net.Conn {
	f.from <- from
	c, err := f.Dial()
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { c.Close() })
	if says != "" {
		if _, err := c.Write([]byte(says)); err != nil {
			f.t.Fatal(err)
		}
	}
	return c
}

// at is a client at an address.
func (f *front) at(from string) *grpc.ClientConn {
	cc, err := grpc.NewClient("passthrough:///b", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return f.dial(from, ""), nil }))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { cc.Close() })
	return cc
}

// open is how many of the connections the server has not closed.
func open(conns []net.Conn) (n int) {
	for _, c := range conns {
		c.SetReadDeadline(time.Now())
		b := make([]byte, 1<<10)
		var err error
		for err == nil {
			_, err = c.Read(b) // settings that the server has sent
		}
		if late, ok := err.(net.Error); ok && late.Timeout() {
			n++
		}
	}
	return n
}

// While one address opens 300 connections a second that say nothing, or begin a handshake
// and do not end it, subscribers from others are served at once. Silent ones are kept for
// 10 s, at most 512 of them.
func TestConnectionsThatAreNotSetUp(t *testing.T) {
	for _, says := range []string{"", "PRI * HTTP/2.0\r\n"} {
		synctest.Test(t, func(t *testing.T) {
			m := newMemStore()
			m.put("web")
			a := assigned(t, nil, "web", 7, 10, 10)
			m.write(a)
			f := newFront(t, m)
			var bad []net.Conn
			for i := range 6 { // seconds
				for range 300 {
					bad = append(bad, f.dial("10.0.0.1", says))
				}
				began := time.Now()
				subscribe(t, f.at(fmt.Sprint("10.0.1.", i)), hello("web"), nil).expect(a, "whole")
				if d := time.Since(began); d > 0 {
					t.Errorf("after %d connections that say %q another joins in %s", len(bad), says, d)
				}
				time.Sleep(time.Second)
			}
			if n := open(bad); says == "" && n != 512 {
				t.Errorf("%d silent connections are kept, not 512", n)
			}
			time.Sleep(40 * time.Second) // 64 handshakes a second begin, and end after ten
			if n := open(bad); n > 0 {
				t.Errorf("%d connections are kept that say %q", n, says)
			}
		})
	}
}

// One address may ask for ten names a second that are no job's, and for a hundred at once.
// Names of jobs do not count, and neither do other addresses.
func TestUnknownNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemStore()
		f := newFront(t, m)
		ask := func(cc *grpc.ClientConn, job string) codes.Code {
			s, err := slicerv1.NewSubscriberServiceClient(cc).Fetch(t.Context(), &slicerv1.FetchRequest{Job: job})
			if err == nil {
				_, err = s.Recv()
			}
			return status.Code(err)
		}
		bad, good := f.at("10.0.0.1"), f.at("10.0.0.2")
		asked := 0
		for range 5 {
			for range 100 {
				asked++
				if c := ask(bad, fmt.Sprint("none-", asked)); c != codes.NotFound && c != codes.ResourceExhausted {
					t.Fatal(c)
				} else if want := asked <= 100 || asked%100 <= 10 && asked%100 > 0; want != (c == codes.NotFound) {
					t.Fatalf("name number %d: %s", asked, c)
				}
			}
			time.Sleep(time.Second)
		}
		m.watchers = nil // what is stored from now on, watchers do not hear of
		for i := range 200 {
			name := fmt.Sprint("job-", i)
			m.put(name)
			m.write(assigned(t, nil, name, 7, 10, 10))
			if c := ask(good, name); c != codes.OK {
				t.Fatalf("job number %d: %s", i, c)
			}
		}
		if c := ask(good, "none-again"); c != codes.NotFound {
			t.Errorf("another address: %s", c)
		}
	})
}
