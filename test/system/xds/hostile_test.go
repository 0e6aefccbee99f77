package xds

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/slicer-project/slicer/assignment/waittest"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/test/kit/process"
)

// The types of resources.
const (
	listenerType = "type.googleapis.com/envoy.config.listener.v3.Listener"
	routesType   = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
	clusterType  = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
)

type adsStream = discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient

// hostile are clients that do what stock clients do not, with one stream after the other.
var hostile = map[string]func(adsStream) error{
	"unknown types": func(s adsStream) error {
		return s.Send(&discoveryv3.DiscoveryRequest{Node: &corev3.Node{Id: "x"}, TypeUrl: "type.googleapis.com/no.such.Type", ResourceNames: []string{job}})
	},
	"huge node id": func(s adsStream) error {
		return s.Send(&discoveryv3.DiscoveryRequest{Node: &corev3.Node{Id: strings.Repeat("x", 900<<10)}, TypeUrl: listenerType})
	},
	"unknown nonces": func(s adsStream) error {
		for i := range 2000 {
			m := &discoveryv3.DiscoveryRequest{Node: &corev3.Node{Id: "nonces"}, TypeUrl: routesType, ResourceNames: []string{job}, ResponseNonce: fmt.Sprint(rand.Uint64()), VersionInfo: fmt.Sprint(i)}
			if err := s.Send(m); err != nil {
				return err
			}
		}
		return nil
	},
	"thousands of names": func(s adsStream) error {
		names := make([]string, 4000)
		for round := range 20 {
			for i := range names {
				names[i] = fmt.Sprintf("%s/own:t%d.%d", job, round, i)
			}
			if err := s.Send(&discoveryv3.DiscoveryRequest{Node: &corev3.Node{Id: "names"}, TypeUrl: clusterType, ResourceNames: names}); err != nil {
				return err
			}
		}
		return nil
	},
	"jobs that do not exist": func(s adsStream) error {
		names := make([]string, 30)
		for i := range names {
			names[i] = fmt.Sprintf("no-%d", rand.Uint32())
		}
		return s.Send(&discoveryv3.DiscoveryRequest{Node: &corev3.Node{Id: "jobs"}, TypeUrl: listenerType, ResourceNames: names})
	},
	"never reads": func(s adsStream) error {
		for _, t := range []string{listenerType, routesType} {
			if err := s.Send(&discoveryv3.DiscoveryRequest{Node: &corev3.Node{Id: "deaf"}, TypeUrl: t, ResourceNames: []string{job}}); err != nil {
				return err
			}
		}
		<-s.Context().Done()
		return nil
	},
	"refuses all": func(s adsStream) error {
		for _, t := range []string{listenerType, routesType} {
			if err := s.Send(&discoveryv3.DiscoveryRequest{Node: &corev3.Node{Id: "refuses"}, TypeUrl: t, ResourceNames: []string{job}}); err != nil {
				return err
			}
		}
		for {
			m, err := s.Recv()
			if err != nil {
				return err
			}
			if err := s.Send(&discoveryv3.DiscoveryRequest{TypeUrl: m.TypeUrl, ResourceNames: []string{job}, ResponseNonce: m.Nonce, ErrorDetail: &rpcstatus.Status{Code: 3, Message: "no"}}); err != nil {
				return err
			}
		}
	},
}

// pause is between two streams of a hostile client, which has this process to itself no more
// than others.
const pause = 5 * time.Millisecond

// attack runs all of them, and connections that do not speak HTTP/2, until ctx is over. streams
// counts them.
func attack(ctx context.Context, t *testing.T, addr string, streams map[string]*atomic.Int64) (wait func()) {
	var wg sync.WaitGroup
	for name, do := range hostile {
		cc, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			defer cc.Close()
			for ; ctx.Err() == nil; time.Sleep(pause) {
				s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(cc).StreamAggregatedResources(ctx)
				if err != nil {
					continue
				}
				streams[name].Add(1)
				if do(s) == nil && name != "never reads" {
					s.CloseSend()
					for err == nil { // until it ends
						_, err = s.Recv()
					}
				}
			}
		})
	}
	for _, start := range []string{"", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"} {
		wg.Go(func() {
			for ; ctx.Err() == nil; time.Sleep(pause) {
				c, err := net.DialTimeout("tcp", addr, time.Second)
				if err != nil {
					continue
				}
				streams["garbage"].Add(1)
				stop := context.AfterFunc(ctx, func() { c.Close() })
				c.SetDeadline(time.Now().Add(time.Second))
				b := make([]byte, 64<<10)
				for i := range b {
					b[i] = byte(rand.Uint32())
				}
				io.WriteString(c, start+string(b))
				io.Copy(io.Discard, c)
				c.Close()
				stop()
			}
		})
	}
	return wg.Wait
}

// Clients that are hostile, or that refuse all that they are sent, harm no other: while they do
// their worst to every Distributor, a stock client loses no call, it and clerks hear of changes,
// and drains end.
func TestHostileClientsHarmNoOther(t *testing.T) {
	f := newFleet(t, quick, 3)
	g := &inGo{t: t, cc: f.dial("go-0")}
	g.check(1)
	ck, err := clerk.New(clerk.Config{Job: job, Distributors: f.plane.Addrs()})
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	g.begin(100)
	ctx, cancel := context.WithCancel(t.Context())
	streams := map[string]*atomic.Int64{"garbage": new(atomic.Int64)}
	for name := range hostile {
		streams[name] = new(atomic.Int64)
	}
	var waits []func()
	for _, addr := range f.plane.Addrs() {
		waits = append(waits, attack(ctx, t, addr, streams))
	}
	end := sync.OnceFunc(func() {
		cancel()
		for _, wait := range waits {
			wait()
		}
	})
	defer end()
	process.Eventually(t, waittest.Patience, "all are at it", func() error {
		for name, n := range streams {
			if n.Load() == 0 {
				return fmt.Errorf("%s is not", name)
			}
		}
		return nil
	})
	began := time.Now()
	f.add("t3")
	f.settled(4)
	g.answeredBy("", 4)
	f.drain("t0")
	f.settled(3)
	want := f.newest()
	process.Eventually(t, waittest.Patience, "the clerk follows", func() error {
		if a := ck.Assignment(); want.Newer(a) {
			return fmt.Errorf("it has %v of %v", a, want)
		}
		return nil
	})
	refusing := 0
	for i := range f.plane.Distributors {
		m, err := f.inspect(i)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range m.Xds {
			refusing += int(x.Refusing)
		}
	}
	if refusing == 0 {
		t.Error("no client shows as refusing")
	}
	goroutines := runtime.NumGoroutine()
	said := ""
	for name, n := range streams {
		said += fmt.Sprintf(" %s %d", name, n.Load())
	}
	t.Logf("%s; streams:%s; %d goroutines", time.Since(began).Round(time.Millisecond), said, goroutines)
	end()
	calls, failed, errors := g.stop()
	t.Logf("%d calls, %d failed", calls, failed)
	if failed > 0 || calls == 0 {
		t.Errorf("%d of %d calls failed: %q", failed, calls, errors)
	}
}
