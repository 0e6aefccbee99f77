package serve_test

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	mrand "math/rand/v2"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/access/accesstest"
	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/lease/leasetest"
	"github.com/slicer-project/slicer/lease/remote"
	"github.com/slicer-project/slicer/lease/serve"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

var (
	histories    = flag.Int("histories", 1, "histories of TestStranger in plain text, and as many over TLS; .ci/run has more")
	strangerSeed = flag.Uint64("stranger-seed", 0, "the seed of the histories of TestStranger to run; 0 for as many as -histories says")
)

// exchange is a listener whose connections come from addresses of the dialers' choice.
type exchange struct {
	mu    sync.Mutex
	conns chan net.Conn // nil while nothing listens
	port  int
	cut   map[string]chan struct{} // hosts that are cut off, closed when they are so no more
}

// cutOff lets nothing pass to and from a host for a while; no connection breaks before
// the end of that.
func (e *exchange) cutOff(host string, d time.Duration) {
	over := make(chan struct{})
	e.mu.Lock()
	e.cut[host] = over
	e.mu.Unlock()
	time.AfterFunc(d, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.cut, host)
		close(over)
	})
}

// off is closed when the host is not cut off any more, nil if it is not.
func (e *exchange) off(host string) chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.cut[host]
}

// cuttable is a host's end of a connection.
type cuttable struct {
	net.Conn
	e    *exchange
	host string
}

func (c cuttable) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if over := c.e.off(c.host); over != nil {
		<-over
		return 0, net.ErrClosed
	}
	return n, err
}

func (c cuttable) Write(p []byte) (int, error) {
	if c.e.off(c.host) != nil {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

type address string

func (a address) Network() string { return "pipe" }
func (a address) String() string  { return string(a) }

type from struct {
	net.Conn
	addr address
}

func (c from) RemoteAddr() net.Addr { return c.addr }

func (e *exchange) dial(host string) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, _ string) (net.Conn, error) {
		e.mu.Lock()
		e.port++
		conns, port := e.conns, e.port
		e.mu.Unlock()
		if conns == nil || e.off(host) != nil {
			return nil, errors.New("connection refused")
		}
		here, there := net.Pipe()
		select {
		case conns <- from{there, address(fmt.Sprintf("%s:%d", host, port))}:
			return cuttable{here, e, host}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// listener is the exchange's while it is not closed.
type listener struct {
	e      *exchange
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (e *exchange) listen() *listener {
	l := &listener{e: e, conns: make(chan net.Conn, 64), closed: make(chan struct{})}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.conns = l.conns
	return l
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() {
		l.e.mu.Lock()
		defer l.e.mu.Unlock()
		if l.e.conns == l.conns {
			l.e.conns = nil
		}
		close(l.closed)
	})
	return nil
}

func (l *listener) Addr() net.Addr { return address("10.0.0.1:1") }

// history is an honest system and a stranger, in virtual time and over real gRPC.
type history struct {
	t     *testing.T
	ctx   context.Context
	seed  uint64
	start time.Time
	*exchange
	durations *durations
	memory    *memory
	authority *accesstest.Authority // nil in plain text
	grpc      *grpc.Server
	wg        sync.WaitGroup

	mu       sync.Mutex
	store    *serve.Store
	process  context.Context // of the store and the assigners
	kill     context.CancelFunc
	restarts int
	restart  time.Duration // the last one
	lost     int           // sessions of honest readers
	logged   []uint64      // numbers that honest processes have logged
	stolen   [][]byte      // names of sessions, which are of no use to another identity
	used     int           // how often strangers used one
	readers  []*lease.Reader
	jobs     map[string][]*lease.Job
	calls    int
	granted  int // claims of the stranger
	changes  int
}

const strangerTasks = 3

func (h *history) clock() time.Duration { return time.Since(h.start) }

func (h *history) serve() {
	s, err := serve.Open(h.ctx, serve.Config{Storage: h.memory, Terms: h.durations.look, Fresh: h.restarts == 0, Clock: h.clock,
		Logger: slog.New(&listens{h: h})})
	if err != nil {
		h.t.Fatal(err)
	}
	var opts []grpc.ServerOption
	if h.authority != nil {
		opts = append(opts, grpc.Creds(h.authority.Server("spiffe://corp/store")), grpc.UnaryInterceptor(h.steal))
	}
	h.grpc = grpc.NewServer(opts...)
	s.Register(h.grpc)
	lis, server := h.listen(), h.grpc
	h.wg.Go(func() { _ = server.Serve(lis) })
	h.mu.Lock()
	defer h.mu.Unlock()
	h.store = s
	h.process, h.kill = context.WithCancel(h.ctx)
}

// steal gives strangers the names of all sessions.
func (h *history) steal(ctx context.Context, q any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	r, err := handle(ctx, q)
	if o, ok := r.(*slicerv1.OpenSessionResponse); ok && err == nil {
		h.mu.Lock()
		h.stolen = append(h.stolen, o.GetSession())
		h.mu.Unlock()
	}
	return r, err
}

// crash ends the store's process without a word and starts it anew, while one
// reader is cut off and goes by its deadline.
func (h *history) crash() {
	h.cutOff("10.0.1.0", 8*time.Second)
	h.mu.Lock()
	h.restarts++
	h.restart = h.clock()
	old := h.store
	h.changes = 0 // from then on
	h.mu.Unlock()
	h.kill()
	h.grpc.Stop()
	old.Close()
	h.serve()
}

// listens notes what honest processes log.
type listens struct {
	slog.Handler
	h *history
}

func (l *listens) Enabled(context.Context, slog.Level) bool { return true }
func (l *listens) Handle(_ context.Context, r slog.Record) error {
	l.h.mu.Lock()
	defer l.h.mu.Unlock()
	if r.Message == "lease session lost" {
		l.h.lost++
	}
	r.Attrs(func(a slog.Attr) bool {
		if n, ok := a.Value.Resolve().Any().(uint64); ok {
			l.h.logged = append(l.h.logged, n)
		}
		return true
	})
	return nil
}
func (l *listens) WithAttrs([]slog.Attr) slog.Handler { return l }
func (l *listens) WithGroup(string) slog.Handler      { return l }

func (h *history) conn(host string) *grpc.ClientConn {
	creds := insecure.NewCredentials()
	if h.authority != nil {
		cfg := h.authority.ClientTLS("spiffe://corp/" + host)
		cfg.ServerName = "127.0.0.1"
		creds = credentials.NewTLS(cfg)
	}
	c, err := grpc.NewClient("passthrough:///store", grpc.WithTransportCredentials(creds), grpc.WithContextDialer(h.dial(host)))
	if err != nil {
		h.t.Fatal(err)
	}
	return c
}

// honest starts the process of a task, which serves all jobs.
func (h *history) honest(i int) (end func()) {
	c := h.conn(fmt.Sprint("10.0.1.", i))
	r, err := lease.NewReader(lease.Config{Readers: remote.New(c), Clock: h.clock, Logger: slog.New(&listens{h: h})})
	if err != nil {
		h.t.Fatal(err)
	}
	h.readers = append(h.readers, r)
	for job := range h.durations.jobs {
		j, err := r.Join(lease.JobConfig{Job: job, Task: leasetest.TaskName(i), Incarnation: leasetest.Incarnation(i),
			Fetch: func(_ context.Context, g assignment.Generation) (*assignment.Assignment, error) {
				return leasetest.Assignment(job, g, strangerTasks)
			}})
		if err != nil {
			h.t.Fatal(err)
		}
		h.jobs[job] = append(h.jobs[job], j)
	}
	return func() { r.Close(); c.Close() }
}

// assign is a job's assigner: one change after the other.
func (h *history) assign(ctx context.Context, job string, rng *mrand.Rand) {
	duration := h.durations.jobs[job]
	var on *serve.Store
	var w lease.WriteSession
	var token lease.Token
	for g := assignment.Generation(1); ; g++ {
		h.mu.Lock()
		store, process := h.store, h.process
		h.mu.Unlock()
		for store != on {
			var err error
			if w, err = store.OpenWriter(ctx, lease.MaxTTL); err == nil {
				token, err = w.Lead(ctx, job)
			}
			if err == nil {
				on = store
			} else if !wait(ctx, 50*time.Millisecond) {
				return
			}
		}
		began := h.clock()
		alive, cancel := context.WithCancel(process)
		stop := context.AfterFunc(ctx, cancel)
		_, err := lease.Advance(alive, w, lease.Change{Job: job, Token: token, Wanted: g, Wait: duration})
		stop()
		cancel()
		h.mu.Lock()
		same := h.store == on
		h.mu.Unlock()
		switch {
		case ctx.Err() != nil:
			return
		case !same || process.Err() != nil:
			g-- // it is another process's by now
		case err != nil:
			h.t.Errorf("%s: job %s, generation %d: %v", h.clock(), job, g, err)
			return
		default:
			h.mu.Lock()
			h.changes++
			h.mu.Unlock()
			// Two waits for readers, and two for those that never let go.
			if took := h.clock() - began; took > 4*duration+time.Second {
				h.t.Errorf("%s: job %s, generation %d: the change took %s, leases last for %s", h.clock(), job, g, took, duration)
			}
		}
		if !wait(ctx, time.Duration(rng.Int64N(int64(time.Second)))) {
			return
		}
	}
}

func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// stranger sends any call with any name of a session, lease time, job and claim.
func (h *history) stranger(ctx context.Context, host string, rng *mrand.Rand) {
	conn := h.conn(host)
	defer conn.Close()
	c := slicerv1.NewLeaseServiceClient(conn)
	var own [][]byte
	records := map[string]*slicerv1.LeaseRecords{}
	jobs := []string{"quick", "quick", "slow", "slow", "unknown", "", "a/b"}
	session := func() []byte {
		if len(own) > 0 && rng.IntN(3) > 0 {
			return own[rng.IntN(len(own))]
		}
		b := make([]byte, 16)
		h.mu.Lock()
		defer h.mu.Unlock()
		switch n := rng.IntN(8); {
		case n > 4 && len(h.stolen) > 0:
			h.used++
			return h.stolen[rng.IntN(len(h.stolen))]
		case n == 0 && len(h.logged) > 0:
			binary.BigEndian.PutUint64(b[8*rng.IntN(2):], h.logged[rng.IntN(len(h.logged))])
		case n == 1:
			binary.BigEndian.PutUint64(b[8:], 1<<32*uint64(rng.IntN(4))+uint64(rng.IntN(16)))
		case n == 2 && len(own) > 0:
			copy(b, own[rng.IntN(len(own))])
			b[rng.IntN(16)]++
		case n == 3:
			rand.Read(b)
		default:
			return b[:rng.IntN(17)]
		}
		return b
	}
	claim := func(job string) *slicerv1.Claim {
		r := records[job]
		switch rng.IntN(4) {
		case 0:
			return &slicerv1.Claim{From: r.GetBridgeFrom(), To: r.GetBridgeTo()}
		case 1:
			return &slicerv1.Claim{From: rng.Int64N(4), To: rng.Int64N(40)}
		}
		return &slicerv1.Claim{To: r.GetGuard()}
	}
	for wait(ctx, time.Duration(rng.Int64N(int64(60*time.Millisecond)))) {
		call, cancel := context.WithTimeout(ctx, 5*time.Second)
		job := jobs[rng.IntN(len(jobs))]
		switch rng.IntN(12) {
		case 0:
			resp, err := c.OpenSession(call, &slicerv1.OpenSessionRequest{TtlMs: []int64{1000, 2000, 600_000, 0, -1, 1 << 62, rng.Int64N(20_000)}[rng.IntN(7)], Jobs: []string{job, jobs[rng.IntN(4)]}})
			if err == nil {
				own = append(own, resp.GetSession())
			}
		case 1:
			_, _ = c.CloseSession(call, &slicerv1.CloseSessionRequest{Session: session()})
		case 2:
			_, _ = c.JoinJob(call, &slicerv1.JoinJobRequest{Session: session(), Job: job})
		case 3:
			_, _ = c.ReleaseClaim(call, &slicerv1.ReleaseClaimRequest{Session: session(), Job: job, Claim: claim(job)})
		case 4:
			if stream, err := c.WatchRecords(call, &slicerv1.WatchRecordsRequest{Session: session(), Job: job}); err == nil {
				if resp, err := stream.Recv(); err == nil {
					records[job] = resp.GetRecords()
				}
			}
		case 5, 6, 7, 8:
			if resp, err := c.AcquireClaim(call, &slicerv1.AcquireClaimRequest{Session: session(), Job: job, Claim: claim(job)}); err == nil {
				records[job] = resp.GetRecords()
				if resp.GetAcquired() {
					h.mu.Lock()
					h.granted++
					h.mu.Unlock()
				}
			}
		default:
			for _, s := range own { // it holds what it holds for as long as it can
				_, _ = c.RenewSession(call, &slicerv1.RenewSessionRequest{Session: s})
			}
			_, _ = c.RenewSession(call, &slicerv1.RenewSessionRequest{Session: session()})
			if stream, err := c.RenewSessions(call); err == nil {
				for range 1 + rng.IntN(3) {
					_ = stream.Send(&slicerv1.RenewSessionsRequest{Number: rng.Int64(), Renewal: &slicerv1.RenewSessionRequest{Session: session()}})
				}
				_, _ = stream.Recv()
			}
		}
		cancel()
		if len(own) > 12 {
			own = own[6:]
		}
		h.mu.Lock()
		h.calls++
		h.mu.Unlock()
	}
}

// check looks, all the time, at which task owns each key.
func (h *history) check(ctx context.Context) {
	keys := assignment.Equal(64)
	type key struct {
		job string
		k   int
	}
	last := map[key]time.Duration{} // when it had an owner
	for wait(ctx, 5*time.Millisecond) {
		now := h.clock()
		h.mu.Lock()
		restart := h.restart
		h.mu.Unlock()
		for job, parts := range h.jobs {
			// With a restart, until a reader has tried again, or is cut off no more.
			limit := h.durations.jobs[job] + 250*time.Millisecond
			for i, k := range keys {
				owners := 0
				for _, j := range parts {
					if j.Owns(k) {
						owners++
					}
				}
				at, seen := last[key{job, i}]
				switch {
				case owners > 1:
					h.t.Errorf("%s: job %s: key %d has %d owners", now, job, i, owners)
					return
				case owners == 1:
					last[key{job, i}] = now
				case seen && now-at > limit && (restart == 0 || now-max(at, restart) > limit+12*time.Second):
					h.t.Errorf("%s: job %s: key %d has been without an owner for %s", now, job, i, now-at)
					return
				}
			}
		}
	}
	for job := range h.jobs {
		for i := range keys {
			if _, seen := last[key{job, i}]; !seen {
				h.t.Errorf("job %s: key %d never had an owner", job, i)
			}
		}
	}
}

// TestStranger runs the lease service with honest readers and assigners of two jobs
// beside strangers that send anything, in plain text, and with certificates of their own over
// TLS, where they know the names of all sessions besides. It is restarted once in every other history,
// the first in plain text and the second over TLS. No key has two owners; none is without an owner for longer than its job's
// lease duration; no honest session is lost but by a restart; each change ends. The
// seed fixes what each process does, not in which order the scheduler runs them.
func TestStranger(t *testing.T) {
	n := *histories
	if *strangerSeed != 0 {
		n = 1
	}
	for i := range n {
		// Of an even seed's history the restart is part.
		for k, name := range []string{"seed-", "tls-seed-"} {
			seed := *strangerSeed
			if seed == 0 {
				seed = mrand.Uint64()&^1 | uint64((i+k)%2)
			}
			t.Run(fmt.Sprint(name, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { stranger(t, seed, k == 1) })
			})
		}
	}
}

func stranger(t *testing.T, seed uint64, overTLS bool) {
	ctx, cancel := context.WithCancel(t.Context())
	h := &history{t: t, ctx: t.Context(), seed: seed, start: time.Now(), exchange: &exchange{cut: map[string]chan struct{}{}}, memory: &memory{}, jobs: map[string][]*lease.Job{},
		durations: &durations{jobs: map[string]time.Duration{"quick": 4 * time.Second, "slow": 9 * time.Second}}}
	if overTLS {
		h.authority = accesstest.New(t)
	}
	h.serve()
	var ends []func()
	for i := range strangerTasks {
		ends = append(ends, h.honest(i))
	}
	source := uint64(0)
	rng := func() *mrand.Rand { source++; return mrand.New(mrand.NewPCG(seed, source)) }
	var wg sync.WaitGroup
	for job := range h.durations.jobs {
		r := rng()
		wg.Go(func() { h.assign(ctx, job, r) })
	}
	for i := range 2 {
		r := rng()
		wg.Go(func() { h.stranger(ctx, fmt.Sprint("10.0.2.", i), r) })
	}
	wg.Go(func() { h.check(ctx) })
	if r := rng(); seed%2 == 0 {
		time.Sleep(20*time.Second + time.Duration(r.Int64N(int64(30*time.Second))))
		h.crash()
	}
	time.Sleep(90*time.Second - h.clock())
	cancel()
	wg.Wait()
	h.kill()
	if most := h.restarts * strangerTasks; h.lost > most {
		t.Errorf("%d honest sessions were lost, at most %d may be", h.lost, most)
	}
	if h.changes == 0 {
		t.Error("no change was completed")
	}
	if overTLS && h.used == 0 {
		t.Error("no stranger has used the name of another's session")
	}
	t.Logf("%d changes since %d restarts; strangers made %d calls and were granted %d claims", h.changes, h.restarts, h.calls, h.granted)
	for _, end := range ends {
		end()
	}
	h.grpc.Stop()
	h.store.Close()
	h.wg.Wait()
	if t.Failed() {
		t.Logf("go test ./lease/serve -run TestStranger -stranger-seed %d", seed)
	}
}
