package distributor

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/waittest"
	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/distributor/fanout"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// loopback serves a Distributor, with one fake assigner, on real sockets.
func loopback(t testing.TB, cfg Config, opts ...grpc.ServerOption) (*Distributor, *fakeAssigner, string) {
	t.Helper()
	serve := func(register func(*grpc.Server), opts ...grpc.ServerOption) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s := grpc.NewServer(opts...)
		register(s)
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.Serve(l)
		}()
		t.Cleanup(func() { s.Stop(); <-done })
		return l.Addr().String()
	}
	f := &fakeAssigner{
		t: t, id: "a1", jobs: make(map[string]*assignment.Assignment), streams: make(map[*fakeStream]struct{}),
		pref: &slicerv1.Preference{Revision: 1, Jobs: []*slicerv1.JobPreference{{Job: testJob, AssignerId: "a1"}}},
	}
	cfg.ID = "d1"
	cfg.Assigners = []string{serve(func(s *grpc.Server) { slicerv1.RegisterAssignerServiceServer(s, f) })}
	d, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d, f, serve(func(s *grpc.Server) { d.Register(s) }, append(ServerOptions(), opts...)...)
}

// crowdMember is one of a crowd: it applies what it gets and says when it holds the
// generation that the crowd waits for.
type crowdMember struct {
	cc     *grpc.ClientConn
	cancel context.CancelFunc
	stuck  bool
	holds  chan *assignment.Assignment // the newest
	ended  chan struct{}
}

func join(t testing.TB, address string, h *slicerv1.Hello, stuck bool) *crowdMember {
	cc, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	m := &crowdMember{cc: cc, cancel: cancel, stuck: stuck, holds: make(chan *assignment.Assignment, 1), ended: make(chan struct{})}
	go func() {
		defer close(m.ended)
		defer cc.Close()
		// One that had no time to say or read something may be told to come again.
		for ; ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
			stream, err := slicerv1.NewSubscriberServiceClient(cc).Watch(ctx)
			if err != nil {
				continue
			}
			stream.Send(&slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Hello{Hello: h}})
			if stuck {
				<-ctx.Done()
				return
			}
			m.follow(t, stream)
		}
	}()
	return m
}

func (m *crowdMember) follow(t testing.TB, stream slicerv1.SubscriberService_WatchClient) {
	var asm wire.Assembler
	var held *assignment.Assignment
	for {
		r, err := stream.Recv()
		switch {
		case err != nil:
			return
		case r.GetChunk() != nil:
			err = asm.Add(r.GetChunk())
		case r.GetTrailer() != nil:
			var a *assignment.Assignment
			if a, err = asm.Finish(r.GetTrailer(), held); err == nil {
				if held != nil && a.Generation() <= held.Generation() {
					t.Errorf("generation %d after %d", a.Generation(), held.Generation())
				}
				held = a
				select {
				case <-m.holds:
				default:
				}
				m.holds <- a
				stream.Send(&slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Ack{Ack: &slicerv1.Ack{Generation: int64(a.Generation())}}})
			}
		}
		if err != nil {
			t.Errorf("update refused: %v", err)
			return
		}
	}
}

// until waits until the member holds want.
func (m *crowdMember) until(t testing.TB, want *assignment.Assignment) {
	for {
		select {
		case a := <-m.holds:
			if a.Generation() == want.Generation() {
				if a.Checksum() != want.Checksum() {
					t.Error("the newest with another checksum")
				}
				return
			}
		case <-time.After(waittest.Patience):
			t.Error("the newest does not arrive")
			return
		}
	}
}

func (m *crowdMember) leave() { m.cancel(); <-m.ended }

// Hundreds join and leave, some of them stop reading, while generations follow one
// another. A subscriber that reads ends with the newest; one that does not costs one.
func TestCrowd(t *testing.T) {
	const crowd, stuck, generations = 200, 20, 25
	reg := prometheus.NewRegistry()
	d, f, address := loopback(t, Config{Registerer: reg})
	const seed = 1
	rnd := rand.New(rand.NewPCG(seed, 0))
	a := firstOf(t, testJob, testStore, baseGen, 1000)
	f.set(a)
	members := make(map[int]*crowdMember)
	for i := range stuck {
		h := clerkHello(fmt.Sprint("stuck-", i))
		members[-i-1] = join(t, address, h, true)
	}
	next := 0
	for len(members) < crowd {
		members[next] = join(t, address, clerkHello(fmt.Sprint("c", next)), false)
		next++
	}
	for range generations {
		a = after(t, a, 10)
		f.set(a)
		var gone sync.WaitGroup
		for i := range members {
			if i >= 0 && rnd.IntN(20) == 0 {
				m := members[i]
				delete(members, i)
				gone.Go(m.leave)
			}
		}
		for len(members) < crowd {
			members[next] = join(t, address, clerkHello(fmt.Sprint("c", next)), false)
			next++
		}
		gone.Wait()
	}
	for i, m := range members {
		if i >= 0 {
			m.until(t, a)
		}
	}
	// Each generation is encoded at most once whole and once for each base held.
	whole, delta := value(t, reg, "slicer_distributor_encodes_total", fanout.KindWhole), value(t, reg, "slicer_distributor_encodes_total", fanout.KindDelta)
	if whole > generations+1 || delta > generations*(fanout.MaxHeld-1) {
		t.Errorf("%v whole encodings and %v deltas of %d generations", whole, delta, generations)
	}
	t.Logf("sent %v whole and %v deltas, encoded %v and %v", value(t, reg, "slicer_distributor_updates_total", fanout.KindWhole),
		value(t, reg, "slicer_distributor_updates_total", fanout.KindDelta), whole, delta)
	// A stuck one can be told to go, and does not hold up Close.
	closed := make(chan struct{})
	go func() { d.Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(waittest.Patience):
		buf := make([]byte, 1<<20)
		io.Copy(t.Output(), strings.NewReader(string(buf[:runtime.Stack(buf, true)])))
		t.Fatal("Close waits for a stuck subscriber")
	}
	for _, m := range members {
		m.leave()
	}
}

// value is the value of a metric, over all jobs, with the kind.
func value(t testing.TB, reg *prometheus.Registry, name, kind string) (sum float64) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, fam := range families {
		if fam.GetName() != name {
			continue
		}
		for _, m := range fam.Metric {
			if kind == "" || hasLabel(m, "kind", kind) {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

func hasLabel(m *dto.Metric, name, value string) bool {
	for _, l := range m.Label {
		if l.GetName() == name && l.GetValue() == value {
			return true
		}
	}
	return false
}
