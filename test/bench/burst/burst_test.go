// Package burst measures how late calls are of clients that are connected while very many
// others connect.
package burst

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/slicelet/sliceletgrpc"
	"github.com/slicer-project/slicer/test/examples/greeter/hello"
)

// roleVariable makes the test's binary a server, or the clients that come at once.
const roleVariable = "SLICER_TEST_BURST_ROLE"

func TestMain(m *testing.M) {
	switch role := os.Getenv(roleVariable); role {
	case "server":
		check(serve())
	case "crowd":
		check(crowd())
	default:
		os.Exit(m.Run())
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serve serves gRPC in TLS on two ports, of which the second is paced, until its input ends.
func serve() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return err
	}
	creds := credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}})
	s, err := slicelet.New(slicelet.Config{Job: "job", Task: "task", Address: "127.0.0.1:1", Distributors: []string{"127.0.0.1:1"}})
	if err != nil {
		return err
	}
	defer s.Close()
	for _, paced := range []bool{false, true} {
		lis, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		fmt.Println(lis.Addr())
		if paced {
			if lis, err = sliceletgrpc.Listener(lis, s, sliceletgrpc.ListenerConfig{}); err != nil {
				return err
			}
		}
		srv := grpc.NewServer(append(sliceletgrpc.ServerOptions(s, sliceletgrpc.Config{}), grpc.Creds(creds))...)
		hello.RegisterGreeterServer(srv, hello.Greeter{})
		go func() { check(srv.Serve(lis)) }()
		defer srv.Stop()
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// crowd reads an address and a number, and has so many clients connect there at once, again
// and again. Each is one as gRPC's, as far as its connection is set up.
func crowd() error {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var addr string
		var many int
		if _, err := fmt.Sscan(in.Text(), &addr, &many); err != nil {
			return err
		}
		var all sync.WaitGroup
		conns, errs := make(chan net.Conn, many), make(chan error, many)
		for i := range many {
			all.Go(func() {
				c, err := connect(addr, i)
				if err != nil {
					errs <- err
					return
				}
				conns <- c
			})
		}
		all.Wait()
		close(conns)
		fmt.Println(len(conns), "connected")
		if len(errs) > 0 {
			fmt.Fprintln(os.Stderr, len(errs), "failed, one:", <-errs)
		}
		for c := range conns {
			c.Close()
		}
	}
	return in.Err()
}

// connect sets up a connection from one of 200 addresses.
func connect(addr string, i int) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(1+i%200))}}
	raw, err := d.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	c := tls.Client(raw, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	// RFC 9113, 3.4 and 4.1: the preface with settings that are empty, and then frames until
	// settings are acknowledged.
	const settings, ack = 4, 1
	if _, err := io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"); err != nil {
		return nil, err
	}
	for {
		var head [9]byte
		if _, err := io.ReadFull(c, head[:]); err != nil {
			return nil, err
		}
		if head[3] == settings && head[4]&ack != 0 {
			return c, nil
		}
		length := int64(head[0])<<16 | int64(head[1])<<8 | int64(head[2])
		if _, err := io.CopyN(io.Discard, c, length); err != nil {
			return nil, err
		}
	}
}

// child is a process of a role.
func child(tb testing.TB, role string) (io.Writer, *bufio.Scanner) {
	tb.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"="+role, "GOMAXPROCS=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			tb.Error(role, err)
		}
	})
	return in, bufio.NewScanner(out)
}

func line(tb testing.TB, s *bufio.Scanner) string {
	tb.Helper()
	if !s.Scan() {
		tb.Fatal("a process has ended", s.Err())
	}
	return s.Text()
}

// BenchmarkBurst: 2,000 clients connect at once, in TLS, to a server on one processor, which
// paces them or does not, in turns. The time of a call, one each 2 ms, counts from when it is to
// be made: of those during the burst the 99th percentile and the most, medians of the turns, and
// what they are without pacing for each millisecond with it.
func BenchmarkBurst(b *testing.B) {
	const many, turns = 2000, 7
	_, out := child(b, "server")
	addrs := [2]string{line(b, out), line(b, out)}
	orders, came := child(b, "crowd")
	var stubs [2]hello.GreeterClient
	for i, addr := range addrs {
		conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})))
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
		stubs[i] = hello.NewGreeterClient(conn)
	}
	for b.Loop() {
		var rest, p99s, most, took [2][]float64
		for range turns {
			for i := range addrs {
				rest[i] = append(rest[i], quantile(calls(b, stubs[i], func() { time.Sleep(300 * time.Millisecond) }), .99))
				began := time.Now()
				during := calls(b, stubs[i], func() {
					fmt.Fprintln(orders, addrs[i], many)
					if said := line(b, came); !strings.HasPrefix(said, fmt.Sprint(many)) {
						b.Error(said)
					}
				})
				took[i] = append(took[i], time.Since(began).Seconds())
				p99s[i], most[i] = append(p99s[i], quantile(during, .99)), append(most[i], quantile(during, 1))
				time.Sleep(300 * time.Millisecond)
			}
		}
		for i, name := range []string{"plain", "paced"} {
			b.ReportMetric(quantile(rest[i], .5), name+"-at-rest-p99-ms")
			b.ReportMetric(quantile(p99s[i], .5), name+"-p99-ms")
			b.ReportMetric(quantile(most[i], .5), name+"-most-ms")
			b.ReportMetric(quantile(took[i], .5), name+"-s")
		}
		b.ReportMetric(quantile(p99s[0], .5)/quantile(p99s[1], .5), "p99-ratio")
		b.ReportMetric(quantile(most[0], .5)/quantile(most[1], .5), "most-ratio")
		b.ReportMetric(0, "ns/op")
	}
}

// calls makes calls until something has been done, and returns how long they took, in ms.
func calls(b *testing.B, stub hello.GreeterClient, do func()) (took []float64) {
	const every = 2 * time.Millisecond
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	var mu sync.Mutex
	var all sync.WaitGroup
	for at := time.Now(); ; at = at.Add(every) {
		select {
		case <-done:
			all.Wait()
			return took
		case <-time.After(time.Until(at)):
		}
		all.Go(func() {
			if _, err := stub.SayHello(ctx, wrapperspb.String("n")); err != nil {
				b.Error(err)
			}
			ms := time.Since(at).Seconds() * 1000
			mu.Lock()
			defer mu.Unlock()
			took = append(took, ms)
		})
	}
}

func quantile(of []float64, q float64) float64 {
	of = slices.Sorted(slices.Values(of))
	return of[min(int(q*float64(len(of))), len(of)-1)]
}
