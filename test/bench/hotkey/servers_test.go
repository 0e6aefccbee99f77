package hotkey

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/slicelet/sliceletgrpc"
	"github.com/slicer-project/slicer/slicelet/slicelethttp"
	"github.com/slicer-project/slicer/test/examples/greeter/hello"
	"github.com/slicer-project/slicer/test/kit/bed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	job = "hot"
	// A server has so many slots, a request keeps one busy for so long, and where handlers
	// shed so many wait for one; others are told that there is no room, which keeps a slot
	// busy for costs if they shed dearly.
	slots    = 2
	takes    = 40 * time.Millisecond
	maxQueue = 16
	costs    = 4 * time.Millisecond
	servers  = 4
	slower   = 20
)

// handlers are of a kind.
type handlers int32

const (
	queue handlers = iota // without bound
	shed
	shedDearly
)

func (k handlers) String() string { return [...]string{"queue", "shed", "shed dearly"}[k] }

// room is what a server has.
type room struct {
	hello.UnaryGreeterServer
	slots   chan struct{}
	waiting atomic.Int64
	fleet   *fleet
	name    string
}

// serve does the work, and reports false if there is no room for it. What has been
// taken up is finished, whether or not it is waited for.
func (r *room) serve(ctx context.Context) bool {
	kind := handlers(r.fleet.kind.Load())
	if r.waiting.Add(1) > maxQueue && kind != queue {
		r.waiting.Add(-1)
		if kind == shedDearly {
			r.slots <- struct{}{}
			time.Sleep(costs)
			<-r.slots
		}
		return false
	}
	select {
	case r.slots <- struct{}{}:
		r.waiting.Add(-1)
	case <-ctx.Done():
		r.waiting.Add(-1)
		return false
	}
	if name := r.fleet.slow.Load(); name != nil && *name == r.name {
		time.Sleep((slower - 1) * takes)
	}
	time.Sleep(takes)
	<-r.slots
	return true
}

func (r *room) SayHello(ctx context.Context, name *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
	if !r.serve(ctx) {
		return nil, sliceletgrpc.Overloaded(ctx)
	}
	return name, nil
}

func (r *room) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if !r.serve(req.Context()) {
		slicelethttp.Overloaded(w, req)
	}
}

// fleet is a control plane and the servers of a job, each of which speaks gRPC and
// HTTP/1.1 at one address by HTTP/2 without TLS and with it left out.
type fleet struct {
	plane    *bed.Plane
	kind     atomic.Int32           // handlers
	slow     atomic.Pointer[string] // the server that is slower times as slow as the others, nil if none is
	attempts atomic.Int64           // at all servers
	hot      string
	others   []string // keys that the owner of hot does not own
	beside   []string // keys that it owns
}

func newFleet(tb testing.TB, cfg assignment.JobConfig) *fleet {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	f := &fleet{plane: bed.Start(tb, bed.Config{})}
	cfg.Name, cfg.Overload.Admission = job, assignment.AdmissionOn
	if err := f.plane.PutJob(ctx, cfg); err != nil {
		tb.Fatal(err)
	}
	for i := range servers {
		f.start(tb, fmt.Sprint("hot-", i))
	}
	ck, err := clerk.New(clerk.Config{Job: job, Distributors: f.plane.Addrs()})
	if err != nil {
		tb.Fatal(err)
	}
	defer ck.Close()
	for {
		changed := ck.Changed()
		owners := map[string]bool{}
		if a := ck.Assignment(); a != nil {
			for _, s := range a.All() {
				owners[s.At(0).Name] = true
			}
		}
		if len(owners) == servers {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			tb.Fatalf("only %v own anything", owners)
		}
	}
	f.hot = "the hot key"
	owner := ck.Lookup(f.hot).At(0).Name
	byOwner := map[string]int{}
	for i := 0; len(f.others) < 30 || len(f.beside) < 10; i++ { // as many keys of each
		key := fmt.Sprint("key ", i)
		if name := ck.Lookup(key).At(0).Name; name == owner {
			f.beside = append(f.beside, key)
		} else if byOwner[name] < 30/(servers-1) {
			byOwner[name]++
			f.others = append(f.others, key)
		}
	}
	return f
}

// start starts a server.
func (f *fleet) start(tb testing.TB, name string) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	s, err := slicelet.New(slicelet.Config{Job: job, Task: name, Address: lis.Addr().String(), Distributors: f.plane.Addrs()})
	if err != nil {
		tb.Fatal(err)
	}
	r := &room{slots: make(chan struct{}, slots), fleet: f, name: name}
	g := grpc.NewServer(sliceletgrpc.ServerOptions(s, sliceletgrpc.Config{})...)
	hello.RegisterGreeterServer(g, r)
	h, err := slicelethttp.Handler(s, r, slicelethttp.Config{})
	if err != nil {
		tb.Fatal(err)
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	srv := &http.Server{Protocols: protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		f.attempts.Add(1)
		if req.ProtoMajor == 2 {
			g.ServeHTTP(w, req)
			return
		}
		h.ServeHTTP(w, req)
	})}
	var wg sync.WaitGroup
	wg.Go(func() { _ = srv.Serve(lis) })
	tb.Cleanup(func() {
		srv.Close()
		g.Stop()
		wg.Wait()
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
}
