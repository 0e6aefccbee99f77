package handover

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/waittest"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/lease/remote"
	"github.com/slicer-project/slicer/lease/serve"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/test/kit/bed"
)

const (
	job     = "entries"
	fleet   = 3
	readers = 6
	writers = 4
)

// rig is a job of servers with real connections, all in this process, and a client.
type rig struct {
	testing.TB
	ctx     context.Context
	plane   *bed.Plane
	mode    assignment.Mode
	late    bool // servers ask others late
	servers [fleet]*process
	client  Client

	mu       sync.Mutex
	draining map[string]chan struct{} // by address: closed when the drain is over
}

// process is what one server's process is made of.
type process struct {
	address  string
	slicelet *slicelet.Slicelet
	leases   *lease.Reader // nil in affinity mode
	conn     *grpc.ClientConn
	entries  *Server
	http     *http.Server
}

// leaseTime is that of the servers in consistent mode.
const leaseTime = 20 * time.Second

func newRig(tb testing.TB, mode assignment.Mode, late bool) *rig {
	ctx, cancel := context.WithTimeout(tb.Context(), 15*time.Minute)
	tb.Cleanup(cancel)
	r := &rig{TB: tb, ctx: ctx, mode: mode, late: late, draining: map[string]chan struct{}{}}
	leases, err := serve.Open(ctx, serve.Config{Storage: &storage{}})
	if err != nil {
		tb.Fatal(err)
	}
	bed.CloseAtEnd(tb, leases.Close)
	r.plane = bed.Start(tb, bed.Config{Leases: leases, Register: func(s grpc.ServiceRegistrar) { leases.Register(s) }})
	// None is taken for dead, and no lease runs out, because the machine is slow.
	cfg := assignment.JobConfig{Name: job, Mode: mode, MaxReplicas: 1, WarmUp: assignment.NoWarmUp, HeartbeatTimeout: time.Minute, LeaseDuration: leaseTime,
		Balance: assignment.BalanceConfig{Interval: 500 * time.Millisecond}}
	if err := r.plane.PutJob(ctx, cfg.WithDefaults()); err != nil {
		tb.Fatal(err)
	}
	r.client.HTTP.Transport = &http.Transport{MaxIdleConnsPerHost: readers + writers}
	tb.Cleanup(r.client.HTTP.CloseIdleConnections)
	if r.client.Clerk, err = clerk.New(clerk.Config{Job: job, Distributors: r.plane.Addrs()}); err != nil {
		tb.Fatal(err)
	}
	bed.CloseAtEnd(tb, r.client.Clerk.Close)
	for i := range r.servers {
		r.start(i)
		tb.Cleanup(func() { r.stop(i) })
	}
	return r
}

// start starts a server anew, at another address, and waits until it owns something.
func (r *rig) start(i int) {
	r.Helper()
	lis, p := bed.Listen(r), &process{}
	cfg := slicelet.Config{Job: job, Task: fmt.Sprintf("entries-%d", i), Address: lis.Addr().String(), Distributors: r.plane.Addrs()}
	var err error
	if r.mode == assignment.Consistent {
		if p.conn, err = grpc.NewClient(r.plane.Addrs()[0], grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
			r.Fatal(err)
		}
		if p.leases, err = lease.NewReader(lease.Config{Readers: remote.New(p.conn), TTL: leaseTime}); err != nil {
			r.Fatal(err)
		}
		cfg.Leases = p.leases
	}
	if p.slicelet, err = slicelet.New(cfg); err != nil {
		r.Fatal(err)
	}
	p.address = cfg.Address
	if r.late {
		p.entries = newServer(p.slicelet, late{&http.Transport{}, r})
	} else {
		p.entries = New(p.slicelet)
	}
	p.http = &http.Server{Handler: p.entries}
	r.servers[i] = p
	go func() { _ = p.http.Serve(lis) }()
	for len(p.slicelet.Slices()) == 0 {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-r.ctx.Done():
			r.Fatalf("server %d owns nothing", i)
		}
	}
}

// stop ends a server as its program does on SIGTERM.
func (r *rig) stop(i int) {
	r.Helper()
	p := r.servers[i]
	if p == nil {
		return
	}
	r.servers[i] = nil
	ctx, cancel := context.WithTimeout(context.Background(), waittest.Patience)
	defer cancel()
	if r.ctx.Err() == nil { // else the test is over
		drained := make(chan struct{})
		r.mu.Lock()
		r.draining[p.address] = drained
		r.mu.Unlock()
		err := p.slicelet.Drain(ctx)
		close(drained)
		if err != nil && !errors.Is(err, slicelet.ErrAlone) {
			r.Error(err)
		}
		if err := p.entries.Emptied(ctx); err != nil {
			r.Errorf("server %d goes with entries: %v", i, err)
		}
	}
	if err := p.http.Shutdown(ctx); err != nil {
		r.Error(err)
	}
	if err := p.slicelet.Close(); err != nil {
		r.Error(err)
	}
	p.entries.peers.CloseIdleConnections()
	if p.leases != nil {
		if err := p.leases.Close(); err != nil {
			r.Error(err)
		}
		p.conn.Close()
	}
}

// late is how a server asks others in the test: it asks one that drains only when
// its drain is over, and others not at once, so that clients write in the middle of a
// hand-over.
type late struct {
	*http.Transport
	r *rig
}

func (l late) RoundTrip(req *http.Request) (*http.Response, error) {
	l.r.mu.Lock()
	drained := l.r.draining[req.URL.Host]
	l.r.mu.Unlock()
	if drained != nil {
		<-drained
	}
	time.Sleep(rand.N(100 * time.Millisecond))
	return l.Transport.RoundTrip(req)
}

// putAnywhere writes an entry as a client does whose assignments are old: to tasks at
// random, but for those that wait for a pause in their requests, until one takes it.
func (r *rig) putAnywhere(ctx context.Context, key string, n uint64) error {
	for {
		a := r.client.Clerk.Assignment()
		task := a.Task(rand.IntN(a.NumTasks()))
		r.mu.Lock()
		_, drains := r.draining[task.Address]
		r.mu.Unlock()
		if drains {
			time.Sleep(time.Millisecond)
			continue
		}
		_, code, err := r.client.ask(ctx, http.MethodPut, fmt.Sprintf("http://%s/entry?key=%s&n=%d", task.Address, key, n))
		if code == http.StatusOK || ctx.Err() != nil {
			return err
		}
	}
}

// verdict is what readers have found.
type verdict struct {
	reads, writes, misses, old atomic.Int64
	restarts                   int
}

// rolling writes entries, each key by one writer with a growing number, and reads
// them, while the servers restart one after the other, again and again until there
// have been so many reads.
func (r *rig) rolling(keys, reads int) *verdict {
	r.Helper()
	v := &verdict{}
	acked := make([]atomic.Uint64, keys)
	key := func(k int) string { return fmt.Sprintf("entry-%d", k) }
	put := func(k int, n uint64) {
		ctx, cancel := context.WithTimeout(r.ctx, waittest.Patience)
		defer cancel()
		write := r.client.Put
		if r.late && n > 1 {
			write = r.putAnywhere
		}
		if err := write(ctx, key(k), n); err != nil && r.ctx.Err() == nil {
			r.Error(err)
			return
		}
		acked[k].Store(n)
		v.writes.Add(1)
	}
	each := func(n int, do func(i int)) (wait func()) {
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() { do(i) })
		}
		return wg.Wait
	}
	each(readers, func(i int) {
		for k := i; k < keys; k += readers {
			put(k, 1)
		}
	})()
	over, end := context.WithCancel(r.ctx)
	defer end()
	written := each(writers, func(i int) {
		for n := uint64(2); ; n++ {
			for k := i; k < keys; k += writers {
				if over.Err() != nil {
					return
				}
				put(k, n)
			}
		}
	})
	read := each(readers, func(int) {
		for over.Err() == nil {
			k := rand.IntN(keys)
			least := acked[k].Load()
			ctx, cancel := context.WithTimeout(r.ctx, waittest.Patience)
			n, ok, err := r.client.Get(ctx, key(k))
			cancel()
			switch {
			case err != nil:
				r.Error(err)
				return
			case !ok:
				v.misses.Add(1)
			case n < least:
				v.old.Add(1)
			}
			v.reads.Add(1)
		}
	})
	for v.restarts == 0 || v.reads.Load() < int64(reads) && !r.Failed() {
		for i := range r.servers {
			r.stop(i)
			r.start(i)
			v.restarts++
		}
	}
	end()
	written()
	read()
	if v.misses.Load() > 0 || v.old.Load() > 0 {
		r.Errorf("%d misses and %d old entries in %d reads", v.misses.Load(), v.old.Load(), v.reads.Load())
	}
	r.nothingTwice(keys)
	return v
}

// nothingTwice checks that each entry is in one server's memory, at one moment, as ranges still move.
func (r *rig) nothingTwice(keys int) {
	r.Helper()
	total, all := 0, map[string]uint64{}
	for _, p := range r.servers {
		p.entries.mu.Lock()
		defer p.entries.mu.Unlock()
	}
	for _, p := range r.servers {
		for _, x := range p.entries.ranges {
			if x.state == here { // what is frozen is being fetched
				total += len(x.rows)
				maps.Copy(all, x.rows)
			}
		}
	}
	if total > len(all) || len(all) > keys {
		r.Errorf("%d entries in memory, of %d keys", total, len(all))
	}
}

func modes(t *testing.T, do func(t *testing.T, mode assignment.Mode)) {
	for _, mode := range []assignment.Mode{assignment.Affinity, assignment.Consistent} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			do(t, mode)
		})
	}
}

// TestRollingRestart moves entries through a restart of all servers: none is
// missing, and none is older than what was acknowledged.
func TestRollingRestart(t *testing.T) {
	modes(t, func(t *testing.T, mode assignment.Mode) {
		v := newRig(t, mode, true).rolling(300, 1)
		t.Logf("%d restarts, %d writes, %d reads", v.restarts, v.writes.Load(), v.reads.Load())
	})
}

// BenchmarkRollingRestart is the same with 10^5 entries and 10^6 reads:
//
//	go test ./test/examples/handover -run '^$' -bench RollingRestart -benchtime 1x -timeout 30m
func BenchmarkRollingRestart(b *testing.B) {
	for _, mode := range []assignment.Mode{assignment.Affinity, assignment.Consistent} {
		b.Run(mode.String(), func(b *testing.B) {
			r := newRig(b, mode, false)
			b.ResetTimer()
			for range b.N {
				v := r.rolling(1e5, 1e6)
				b.ReportMetric(float64(v.restarts), "restarts")
				b.ReportMetric(float64(v.reads.Load()), "reads")
				b.ReportMetric(float64(v.writes.Load()), "writes")
				b.ReportMetric(float64(v.misses.Load()), "misses")
				b.ReportMetric(float64(v.old.Load()), "old")
			}
		})
	}
}

// storage keeps the lease store's records.
type storage struct {
	mu      sync.Mutex
	records map[string][]byte
}

func (m *storage) Load(context.Context) (map[string][]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.records), nil
}

func (m *storage) Put(_ context.Context, records map[string][]byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.records == nil {
		m.records = map[string][]byte{}
	}
	maps.Copy(m.records, records)
	return nil
}
