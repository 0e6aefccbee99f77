package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/store/etcdstore/etcdtest"
	"github.com/slicer-project/slicer/assignment/store/storetest"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// line is a connection to etcd that can be cut and put together again.
type line struct {
	listener net.Listener
	to       string
	running  sync.WaitGroup

	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]struct{}
}

func newLine(t *testing.T, to string) *line {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &line{listener: l, to: to, conns: make(map[net.Conn]struct{})}
	p.running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.running.Go(func() { p.carry(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.setCut(true)
		p.running.Wait()
	})
	return p
}

func (p *line) carry(in net.Conn) {
	out, err := net.Dial("tcp", p.to)
	if err != nil {
		in.Close()
		return
	}
	p.mu.Lock()
	if p.cut {
		p.mu.Unlock()
		in.Close()
		out.Close()
		return
	}
	p.conns[in], p.conns[out] = struct{}{}, struct{}{}
	p.mu.Unlock()
	p.running.Go(func() { _, _ = io.Copy(out, in); out.Close() })
	_, _ = io.Copy(in, out)
	in.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, in)
	delete(p.conns, out)
}

func (p *line) setCut(cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = cut
	for c := range p.conns {
		if cut {
			c.Close()
		}
	}
}

// far is the config of the same store, beyond the line.
func (p *line) far(cfg Config) Config {
	cfg.Endpoints = []string{p.listener.Addr().String()}
	return cfg
}

func putJob(t *testing.T, s store.Store, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := s.PutJob(t.Context(), assignment.JobConfig{Name: name}, store.AnyVersion); err != nil {
			t.Fatal(err)
		}
	}
}

// names reads until all of want have been named, and fails at any other.
func names(t *testing.T, w store.Watcher, want ...string) {
	t.Helper()
	left := strings.Fields(strings.Join(want, " "))
	for len(left) > 0 {
		got, err := w.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range got.Jobs() {
			found := false
			for i, l := range left {
				if l == name {
					left, found = append(left[:i], left[i+1:]...), true
					break
				}
			}
			if !found {
				t.Errorf("%s is named, want only %v", name, want)
			}
		}
	}
}

// TestWatchAfterCompaction cuts a watch off while jobs change and etcd forgets
// how: it names what has changed, and nothing else.
func TestWatchAfterCompaction(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	cfg := config(t)
	near := open(t, cfg)
	p := newLine(t, cfg.Endpoints[0])
	far := open(t, p.far(cfg))
	putJob(t, near, "a", "b", "c", "d")
	w, err := far.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	names(t, w, "a", "b", "c", "d")
	candidates, err := far.Candidates(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer candidates.Close()
	_, before, err := candidates.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for round := range 3 {
		p.setCut(true)
		rng := rand.New(rand.NewPCG(1, uint64(round)))
		a := storetest.First("a", near.ID(), assignment.Generation(100*round+100), 3, 10)
		if prev, err := near.Read(ctx, "a"); err == nil {
			a = storetest.Next(prev, a.Generation(), .1, "x", rng)
		}
		if err := near.Write(ctx, a); err != nil {
			t.Fatal(err)
		}
		putJob(t, near, "b", fmt.Sprint("new-", round))
		if round == 1 {
			if err := near.DeleteJob(ctx, "c"); err != nil {
				t.Fatal(err)
			}
		}
		reg, err := near.Register(ctx, store.Candidate{ID: fmt.Sprint(round), Address: "h:1"})
		if err != nil {
			t.Fatal(err)
		}
		defer reg.Close()
		resp, err := near.client.Get(ctx, "x")
		if err != nil {
			t.Fatal(err)
		}
		if round != 0 { // the first time the thread is not lost
			if _, err := near.client.Compact(ctx, resp.Header.Revision); err != nil {
				t.Fatal(err)
			}
		}
		p.setCut(false)
		want := []string{"a", "b", fmt.Sprint("new-", round)}
		if round == 1 {
			want = append(want, "c")
		}
		names(t, w, want...)
		who, rev, err := candidates.Next(ctx)
		if err != nil || len(who) != round+1 || rev <= before {
			t.Errorf("candidates %v at %d after %d, %v", who, rev, before, err)
		}
		before = rev
		if got, err := far.Read(ctx, "a"); err != nil || !storetest.Same(got, a) {
			t.Errorf("read %v, %v; want %v", got, err, a)
		}
	}
}

// TestReadAfterCompaction lets etcd forget the revision that a reader is at,
// between its requests.
func TestReadAfterCompaction(t *testing.T) {
	ctx := t.Context()
	cfg := config(t)
	s := open(t, cfg)
	putJob(t, s, "a")
	rng := rand.New(rand.NewPCG(1, 7))
	a := writeAll(t, s, storetest.First("a", s.ID(), 1, 5, large), 3, rng)
	for at := 2; at <= 3; at++ { // the generations, the pieces
		st := &steps{at: at}
		st.before = func(any) error {
			a = storetest.Next(a, a.Generation()+1, .01, "x", rng)
			if err := s.Write(ctx, a); err != nil {
				return err
			}
			resp, err := s.client.Get(ctx, "x")
			if err == nil {
				_, err = s.client.Compact(ctx, resp.Header.Revision)
			}
			return err
		}
		cfg.dialOptions = st.options()
		reader := open(t, cfg)
		got, err := reader.Read(st.mark(ctx), "a")
		if err != nil || !storetest.Same(got, a) {
			t.Errorf("request %d: %v, %v; want %v", at, got, err, a)
		}
		if st.count <= at {
			t.Errorf("%d requests, the %dth was to fail", st.count, at)
		}
	}
}

// TestRegistrationOutlivesItsLease: an entry whose lease is revoked comes back;
// one whose process is cut off goes, and comes back with it.
func TestRegistrationOutlivesItsLease(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	cfg := config(t)
	cfg.RegistrationTTL = 2 * time.Second
	near := open(t, cfg)
	p := newLine(t, cfg.Endpoints[0])
	far := open(t, p.far(cfg))
	w, err := near.Candidates(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	until := func(n int) {
		t.Helper()
		for {
			who, _, err := w.Next(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if len(who) == n {
				return
			}
		}
	}
	until(0)
	reg, err := far.Register(ctx, store.Candidate{ID: "a", Address: "h:1"})
	if err != nil {
		t.Fatal(err)
	}
	until(1)
	resp, err := near.client.Get(ctx, near.layout.Assigners()+"a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := near.client.Revoke(ctx, clientv3.LeaseID(resp.Kvs[0].Lease)); err != nil {
		t.Fatal(err)
	}
	until(0)
	until(1)
	p.setCut(true)
	until(0)
	p.setCut(false)
	until(1)
	if err := reg.Close(); err != nil {
		t.Error(err)
	}
	until(0)
}

// TestWithoutQuorum: calls end in time and say so, watches outlive it, and
// when the quorum is back everything goes on.
func TestWithoutQuorum(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.NewCluster(t, 2)
	cfg := config(t)
	cfg.Endpoints = cluster.Endpoints()[:1]
	s := open(t, cfg)
	putJob(t, s, "a")
	a := storetest.First("a", s.ID(), 1, 3, 10)
	if err := s.Write(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	w, err := s.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	names(t, w, "a")
	reg, err := s.Register(t.Context(), store.Candidate{ID: "a", Address: "h:1"})
	if err != nil {
		t.Fatal(err)
	}
	cfg.RequestTimeout = 3 * time.Second
	short := open(t, cfg)
	cluster.Stop(1)
	next := storetest.Next(a, 2, .1, "x", rand.New(rand.NewPCG(1, 8)))
	var calls sync.WaitGroup
	for name, call := range map[string]func() error{
		"GetJob":         func() error { _, err := short.GetJob(t.Context(), "a"); return err },
		"ListJobs":       func() error { _, err := short.ListJobs(t.Context()); return err },
		"PutJob":         func() error { _, err := short.PutJob(t.Context(), assignment.JobConfig{Name: "a"}, 0); return err },
		"DeleteJob":      func() error { return short.DeleteJob(t.Context(), "a") },
		"Read":           func() error { _, err := short.Read(t.Context(), "a"); return err },
		"ReadGeneration": func() error { _, err := short.ReadGeneration(t.Context(), "a", 1); return err },
		"Write":          func() error { return short.Write(t.Context(), next) },
		"Watch":          func() error { _, err := short.Watch(t.Context()); return err },
		"Candidates":     func() error { _, err := short.Candidates(t.Context()); return err },
		"Register": func() error {
			_, err := short.Register(t.Context(), store.Candidate{ID: "b", Address: "h:1"})
			return err
		},
		"Open": func() error { _, err := Open(t.Context(), cfg); return err },
	} {
		calls.Go(func() {
			if err := call(); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), cfg.Endpoints[0]) {
				t.Errorf("%s: error %v, want one that is %v and names the endpoint", name, err, store.ErrUnavailable)
			}
		})
	}
	calls.Wait()
	cluster.Restart(t, 1)
	for {
		if _, err := s.PutJob(t.Context(), assignment.JobConfig{Name: "b"}, store.AnyVersion); err == nil {
			break
		}
	}
	for found := false; !found; {
		got, err := w.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range got.Jobs() {
			found = found || name == "b"
		}
	}
	if err := reg.Close(); err != nil {
		t.Error(err)
	}
}

// TestWiped: a store that was wiped and made anew under its users is noticed by
// each of their calls, and they end.
func TestWiped(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for _, again := range []bool{false, true} {
		for _, call := range []func(*Store) error{
			func(s *Store) error { return s.Write(ctx, storetest.First("a", s.ID(), 1, 3, 10)) },
			func(s *Store) error { _, err := s.Read(ctx, "a"); return err },
			func(s *Store) error { _, err := s.PutJob(ctx, assignment.JobConfig{Name: "a"}, 0); return err },
			func(s *Store) error { _, err := s.Watch(ctx); return err },
			func(s *Store) error { _, err := s.Register(ctx, store.Candidate{ID: "a", Address: "h:1"}); return err },
		} {
			cfg := config(t)
			s := open(t, cfg)
			if _, err := s.client.Delete(ctx, cfg.Prefix, clientv3.WithPrefix()); err != nil {
				t.Fatal(err)
			}
			if again {
				if open(t, cfg).ID() == s.ID() {
					t.Error("a new store has the old id")
				}
			}
			if err := call(s); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "wiped") {
				t.Errorf("error %v", err)
			}
			<-s.Failed()
			if _, err := s.GetJob(ctx, "a"); !errors.Is(err, store.ErrUnavailable) || !errors.Is(s.Err(), store.ErrUnavailable) {
				t.Errorf("later: %v; %v", err, s.Err())
			}
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // no answer comes
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	silent := l.Addr().String()
	for _, c := range []struct {
		name string
		cfg  Config
		want string
	}{
		{"no endpoint", Config{}, "store endpoints"},
		{"bad endpoint", Config{Endpoints: []string{"h"}}, `store endpoint: "h"`},
		{"bad prefix", Config{Endpoints: []string{"h:1"}, Prefix: "p"}, "store prefix"},
		{"few generations", Config{Endpoints: []string{"h:1"}, Keep: 1}, "kept generations"},
		{"short timeout", Config{Endpoints: []string{"h:1"}, RequestTimeout: 1}, "request timeout"},
		{"odd TTL", Config{Endpoints: []string{"h:1"}, RegistrationTTL: 2500 * time.Millisecond}, "registration TTL"},
		{"nothing there", Config{Endpoints: []string{"127.0.0.1:1", "127.0.0.1:2"}, RequestTimeout: 200 * time.Millisecond}, "etcd://127.0.0.1:1,127.0.0.1:2/slicer"},
		{"no answer", Config{Endpoints: []string{silent}, Prefix: "/p", RequestTimeout: 200 * time.Millisecond}, "etcd://" + silent + "/p"},
	} {
		s, err := Open(context.Background(), c.cfg)
		if err == nil {
			s.Close()
			t.Errorf("%s: opened", c.name)
		} else if !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %q, want one line with %q", c.name, err, c.want)
		}
	}
}

func TestGraveyard(t *testing.T) {
	var g graveyard
	start := time.Now()
	a, b, a2 := marker{"a", 1}, marker{"b", 2}, marker{"a", 9}
	for i, c := range []struct {
		after time.Duration
		there []marker
		dead  []marker
	}{
		{0, []marker{a}, nil},
		{attemptGrace - 1, []marker{a, b}, nil},
		{attemptGrace, []marker{a, b}, []marker{a}},
		{attemptGrace + 1, []marker{b, a2}, nil}, // another one under the key
		{2*attemptGrace - 1, []marker{b, a2}, []marker{b}},
		{2 * attemptGrace, nil, nil},
		{4 * attemptGrace, []marker{b}, nil}, // it was gone, so it counts anew
	} {
		if dead := g.observe(start.Add(c.after), c.there); fmt.Sprint(dead) != fmt.Sprint(c.dead) {
			t.Errorf("step %d: dead %v, want %v", i, dead, c.dead)
		}
	}
}
