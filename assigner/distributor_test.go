package assigner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/store/pebblestore"
	"github.com/slicer-project/slicer/assignment/waittest"
	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/lease/serve"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// node is an assigner behind a gRPC server on loopback.
type node struct {
	*Assigner
	t      testing.TB
	server *grpc.Server
	served chan struct{}
	conn   *grpc.ClientConn
	admin  slicerv1.AdminServiceClient
	once   sync.Once
}

// keepAll is how many generations the tests' stores keep: the most they can.
const keepAll = 1024

func openPebble(t testing.TB) store.Backend {
	t.Helper()
	st, err := pebblestore.Open(t.TempDir(), pebblestore.Config{Keep: keepAll, Timeout: waittest.Patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	return st
}

// openLeases serves leases on a store's disk.
func openLeases(t testing.TB, st store.Backend) *serve.Store {
	t.Helper()
	begun := time.Now()
	s, err := serve.Open(t.Context(), serve.Config{
		Storage: st.(*pebblestore.Store).Leases(), Clock: func() time.Duration { return time.Since(begun) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func testLogger(t testing.TB) *slog.Logger {
	if testing.Verbose() {
		return slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	return slog.New(slog.DiscardHandler)
}

// start runs an assigner with defaults for what is left out.
func start(t testing.TB, cfg Config) *node {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return startOn(t, cfg, lis, nil)
}

func startOn(t testing.TB, cfg Config, lis net.Listener, dial func(context.Context, string) (net.Conn, error)) *node {
	t.Helper()
	if cfg.ID == "" {
		cfg.ID = "a1"
	}
	if cfg.Address == "" {
		cfg.Address = "127.0.0.1:1"
	}
	if cfg.Stores == nil {
		st := openPebble(t)
		cfg.Stores = []NamedStore{{Backend: st, Leases: openLeases(t, st)}}
	}
	cfg.Logger = testLogger(t)
	a, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	n := &node{Assigner: a, t: t, server: grpc.NewServer(ServerOptions()...), served: make(chan struct{})}
	a.Register(n.server)
	go func() {
		defer close(n.served)
		_ = n.server.Serve(lis)
	}()
	opts := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	if dial != nil {
		opts = append(opts, grpc.WithContextDialer(dial))
	}
	n.conn, err = grpc.NewClient("passthrough:///"+lis.Addr().String(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	n.admin = slicerv1.NewAdminServiceClient(n.conn)
	t.Cleanup(n.stop)
	return n
}

func (n *node) stop() {
	n.once.Do(func() {
		if err := n.Close(); err != nil {
			n.t.Error(err)
		}
		n.conn.Close()
		n.server.Stop()
		<-n.served
	})
}

func (n *node) put(cfg *slicerv1.JobConfig) *slicerv1.Job {
	n.t.Helper()
	resp, err := n.admin.PutJob(n.t.Context(), &slicerv1.PutJobRequest{Config: cfg})
	if err != nil {
		n.t.Fatal(err)
	}
	return resp.Job
}

func (n *node) inspect(job string) *slicerv1.InspectJobResponse {
	n.t.Helper()
	resp, err := n.admin.InspectJob(n.t.Context(), &slicerv1.InspectJobRequest{Job: job})
	if err != nil {
		n.t.Fatal(err)
	}
	return resp
}

// raw is a Distributor made of a bare stream.
type raw struct {
	t      testing.TB
	stream slicerv1.AssignerService_AttachClient
	cancel context.CancelFunc
	done   chan struct{}

	mu     sync.Mutex
	change chan struct{} // closed at the next change
	// What has come.
	id       string
	prefs    map[uint64]*slicerv1.Preference
	held     map[string]*assignment.Assignment
	past     map[int64]*assignment.Assignment // by generation, if a test wants all that was held to do as a base
	trailers map[string][]*slicerv1.Trailer
	statuses map[string]*slicerv1.JobStatus
	counts   map[string]int // of statuses
	refused  []*slicerv1.RefuseTask
	indexes  map[string]uint32 // of clients
	grants   []int             // how many of them came in each message
	err      error
	pieces   map[string]*wire.Assembler
	bases    []*assignment.Assignment // answers to WantBase, nil for none
	base     wire.Assembler

	seq map[string]uint64
}

// attach opens a stream and says hello.
func (n *node) attach(name string) *raw { return n.attachOn(n.conn, name) }

func (n *node) attachOn(conn *grpc.ClientConn, name string) *raw {
	n.t.Helper()
	d := n.openOn(conn)
	d.say(&slicerv1.AttachRequest{Message: &slicerv1.AttachRequest_Hello{Hello: &slicerv1.DistributorHello{DistributorId: name}}})
	d.wait("the assigner's hello", func() bool { return d.id == n.cfg.ID })
	return d
}

func (n *node) open() *raw { return n.openOn(n.conn) }

func (n *node) openOn(conn *grpc.ClientConn) *raw {
	n.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := slicerv1.NewAssignerServiceClient(conn).Attach(ctx)
	if err != nil {
		n.t.Fatal(err)
	}
	d := &raw{t: n.t, stream: stream, cancel: cancel, done: make(chan struct{}), change: make(chan struct{}),
		prefs: map[uint64]*slicerv1.Preference{}, held: map[string]*assignment.Assignment{}, trailers: map[string][]*slicerv1.Trailer{},
		statuses: map[string]*slicerv1.JobStatus{}, counts: map[string]int{}, pieces: map[string]*wire.Assembler{}, seq: map[string]uint64{}, indexes: map[string]uint32{}}
	go d.receive()
	n.t.Cleanup(d.close)
	return d
}

func (d *raw) close() {
	d.cancel()
	<-d.done
}

func (d *raw) receive() {
	defer close(d.done)
	for {
		m, err := d.stream.Recv()
		d.mu.Lock()
		if err != nil {
			d.err = err
		} else {
			d.take(m)
		}
		close(d.change)
		d.change = make(chan struct{})
		d.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (d *raw) take(m *slicerv1.AttachResponse) {
	switch x := m.Message.(type) {
	case *slicerv1.AttachResponse_Hello:
		d.id = x.Hello.AssignerId
	case *slicerv1.AttachResponse_Preference:
		d.prefs[x.Preference.StoreId] = x.Preference
	case *slicerv1.AttachResponse_Status:
		d.statuses[x.Status.Job] = x.Status
		d.counts[x.Status.Job]++
	case *slicerv1.AttachResponse_RefuseTask:
		d.refused = append(d.refused, x.RefuseTask)
	case *slicerv1.AttachResponse_ClientIndexes:
		d.grants = append(d.grants, len(x.ClientIndexes.Indexes))
		for _, c := range x.ClientIndexes.Indexes {
			d.indexes[c.ClientId] = c.Index
		}
	case *slicerv1.AttachResponse_Base:
		switch p := x.Base.Piece.(type) {
		case *slicerv1.JobAssignment_Chunk:
			if err := d.base.Add(p.Chunk); err != nil {
				d.t.Error(err)
			}
		case *slicerv1.JobAssignment_Trailer:
			a, err := d.base.Finish(p.Trailer, nil)
			if err != nil {
				d.t.Error(err)
			}
			d.bases = append(d.bases, a)
		default:
			d.bases = append(d.bases, nil)
		}
	case *slicerv1.AttachResponse_Assignment:
		job := x.Assignment.Job
		if d.pieces[job] == nil {
			d.pieces[job] = &wire.Assembler{}
		}
		switch p := x.Assignment.Piece.(type) {
		case *slicerv1.JobAssignment_Chunk:
			if err := d.pieces[job].Add(p.Chunk); err != nil {
				d.t.Error(err)
			}
		case *slicerv1.JobAssignment_Trailer:
			d.trailers[job] = append(d.trailers[job], p.Trailer)
			base := d.held[job]
			if past, ok := d.past[p.Trailer.Base]; ok {
				base = past
			}
			a, err := d.pieces[job].Finish(p.Trailer, base)
			if err != nil {
				d.t.Errorf("assignment of %s: %v", job, err)
				return
			}
			if old := d.held[job]; old != nil && old.StoreID() == a.StoreID() && a.Generation() < old.Generation() {
				d.t.Errorf("generation %d after %d", a.Generation(), old.Generation())
			}
			d.held[job] = a
			if d.past != nil {
				d.past[int64(a.Generation())] = a
			}
		}
	}
}

// wait waits until what has come satisfies f, which is called with mu held.
func (d *raw) wait(what string, f func() bool) {
	d.t.Helper()
	timeout := time.NewTimer(waittest.Patience)
	defer timeout.Stop()
	for {
		d.mu.Lock()
		ok, change, err := f(), d.change, d.err
		d.mu.Unlock()
		if ok {
			return
		}
		if err != nil {
			d.t.Fatalf("waiting for %s: the stream has ended: %v", what, err)
		}
		select {
		case <-change:
		case <-timeout.C:
			d.t.Fatalf("waited in vain for %s", what)
		}
	}
}

// ended waits for the end of the stream.
func (d *raw) ended() error {
	d.t.Helper()
	select {
	case <-d.done:
	case <-time.After(waittest.Patience):
		d.t.Fatal("the stream does not end")
	}
	return d.err
}

func (d *raw) say(m *slicerv1.AttachRequest) {
	d.t.Helper()
	if err := d.stream.Send(m); err != nil && !errors.Is(err, io.EOF) {
		d.t.Fatal(err)
	}
}

// preferred waits until the assigner says that id is preferred for the job.
func (d *raw) preferred(job, id string) {
	d.t.Helper()
	d.wait(fmt.Sprintf("%s to be preferred for %s", id, job), func() bool {
		for _, p := range d.prefs {
			for _, j := range p.Jobs {
				if j.Job == job && j.AssignerId == id {
					return true
				}
			}
		}
		return false
	})
}

func task(name string, incarnation uint64) *slicerv1.Task {
	return &slicerv1.Task{Name: name, Incarnation: incarnation, Address: name + ":80", Weight: 1, State: slicerv1.TaskState_TASK_STATE_RUNNING}
}

// reports sends what tasks report, with increasing sequences.
func (d *raw) reports(job string, complete bool, tasks ...*slicerv1.Task) {
	d.t.Helper()
	m := &slicerv1.TaskReports{Job: job, Complete: complete}
	for _, t := range tasks {
		d.seq[t.Name]++
		m.Reports = append(m.Reports, &slicerv1.TaskReport{Task: t, Report: &slicerv1.Report{Sequence: d.seq[t.Name], State: t.State}})
	}
	d.say(&slicerv1.AttachRequest{Message: &slicerv1.AttachRequest_Reports{Reports: m}})
}

func (d *raw) gone(job string, t *slicerv1.Task) {
	d.t.Helper()
	d.say(&slicerv1.AttachRequest{Message: &slicerv1.AttachRequest_Reports{Reports: &slicerv1.TaskReports{
		Job: job, Reports: []*slicerv1.TaskReport{{Task: t, Disconnected: true}}}}})
}

func (d *raw) want(w *slicerv1.Want) {
	d.t.Helper()
	d.say(&slicerv1.AttachRequest{Message: &slicerv1.AttachRequest_Want{Want: w}})
}

func (d *raw) acks(a *slicerv1.Acks) {
	d.t.Helper()
	d.say(&slicerv1.AttachRequest{Message: &slicerv1.AttachRequest_Acks{Acks: a}})
}

// holds waits for an assignment that satisfies f, and returns it.
func (d *raw) holds(job, what string, f func(a *assignment.Assignment) bool) *assignment.Assignment {
	d.t.Helper()
	var a *assignment.Assignment
	d.wait("an assignment with "+what, func() bool {
		a = d.held[job]
		return a != nil && f(a)
	})
	return a
}

// owners are the names of the tasks that own slices.
func owners(a *assignment.Assignment) []string {
	names := map[string]bool{}
	for _, r := range a.All() {
		for t := range r.All() {
			names[t.Name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

func ownedBy(names ...string) func(*assignment.Assignment) bool {
	return func(a *assignment.Assignment) bool { return slices.Equal(owners(a), names) }
}

// loadOf is what a task measures, whose slices carry rate.
func loadOf(a *assignment.Assignment, name string, rate func(assignment.Slice) float64) *slicerv1.LoadReport {
	l := &assignment.Load{Generation: a.Generation(), Window: time.Second, Parts: 1}
	for s, r := range a.All() {
		for t := range r.All() {
			if t.Name == name {
				l.Ranges = append(l.Ranges, s)
				l.Rate = append(l.Rate, rate(s)/float64(r.Len()))
				l.Total += rate(s) / float64(r.Len())
			}
		}
	}
	return wire.LoadToProto(l)
}
