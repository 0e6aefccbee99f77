package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/seedtest"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/store/internal/record"
	"github.com/slicer-project/slicer/assignment/store/storetest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// steps stands between a store and etcd. It counts the requests of calls whose
// ctx it has marked, and does something before or after one of them.
type steps struct {
	mu     sync.Mutex
	count  int
	at     int                 // the request that counts, from 1; 0 for none
	before func(req any) error // an error stops the request from being sent
	after  func()              // the answer is lost; may be nil
	dead   error               // what every marked request fails with from then on
	sent   func(method string, req any)
}

type stepKey struct{}

func (s *steps) mark(ctx context.Context) context.Context {
	return context.WithValue(ctx, stepKey{}, s)
}

func (s *steps) intercept(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if ctx.Value(stepKey{}) != s {
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	s.mu.Lock()
	s.count++
	here, dead := s.count == s.at, s.dead
	s.mu.Unlock()
	if dead != nil {
		return dead
	}
	if s.sent != nil {
		s.sent(method, req)
	}
	if here && s.before != nil {
		if err := s.before(req); err != nil {
			s.die()
			return err
		}
	}
	err := invoke(ctx, method, req, reply, cc, opts...)
	if here && s.after != nil {
		s.after()
		return s.die()
	}
	return err
}

func (s *steps) die() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dead = status.Error(codes.Aborted, "killed")
	return s.dead
}

func (s *steps) options() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(s.intercept)}
}

// scene is a job at a point of its life, and the write that is disturbed.
type scene struct {
	name string
	// prepare writes what is there before and returns it, nil if there is nothing.
	prepare func(t *testing.T, s *Store) *assignment.Assignment
	// propose returns who's assignment after base, which may be nil.
	propose func(s *Store, base *assignment.Assignment, who string) *assignment.Assignment
}

func (sc *scene) setUp(t *testing.T) (Config, *Store, *assignment.Assignment) {
	t.Helper()
	cfg := config(t)
	cfg.Keep = 2
	s := open(t, cfg)
	if _, err := s.PutJob(t.Context(), assignment.JobConfig{Name: "a"}, store.NoVersion); err != nil {
		t.Fatal(err)
	}
	return cfg, s, sc.prepare(t, s)
}

func writeAll(t *testing.T, s *Store, a *assignment.Assignment, more int, rng *rand.Rand) *assignment.Assignment {
	t.Helper()
	for i := 0; ; i++ {
		if err := s.Write(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		if i == more {
			return a
		}
		a = storetest.Next(a, a.Generation()+1, .01, "x", rng)
	}
}

const large = 120_000 // slices, in two pieces

func scenes() []scene {
	rng := rand.New(rand.NewPCG(1, 2))
	next := func(share float64) func(*Store, *assignment.Assignment, string) *assignment.Assignment {
		return func(_ *Store, base *assignment.Assignment, who string) *assignment.Assignment {
			return storetest.Next(base, base.Generation()+1, share, who, rng)
		}
	}
	first := func(slices int) func(*Store, *assignment.Assignment, string) *assignment.Assignment {
		return func(s *Store, _ *assignment.Assignment, who string) *assignment.Assignment {
			return storetest.First("a", s.ID(), 10, 2+len(who), slices)
		}
	}
	nothing := func(*testing.T, *Store) *assignment.Assignment { return nil }
	there := func(slices, more int) func(*testing.T, *Store) *assignment.Assignment {
		return func(t *testing.T, s *Store) *assignment.Assignment {
			return writeAll(t, s, storetest.First("a", s.ID(), 1, 5, slices), more, rng)
		}
	}
	all := []scene{
		{"first", nothing, first(100)},
		{"first, large", nothing, first(large)},
		{"delta", there(1000, 2), next(.01)},
		{"checkpoint", there(1000, 63), next(.01)},
		{"long delta", there(large, 0), next(.2)},
		{"large checkpoint that drops the one before", func(t *testing.T, s *Store) *assignment.Assignment {
			a := there(large, 0)(t, s)
			b := storetest.Shuffled(a, 2, rng)
			return writeAll(t, s, b, 1, rng)
		}, func(_ *Store, base *assignment.Assignment, who string) *assignment.Assignment {
			return storetest.Shuffled(base, base.Generation()+assignment.Generation(len(who)), rng)
		}},
	}
	if seedtest.Detector {
		return all[:4] // the rest is as the second, only longer
	}
	return all
}

// check makes sure that s holds want whole, that every piece is named by a record, and
// that a write on it succeeds and leaves no garbage.
func check(t *testing.T, cfg Config, want *assignment.Assignment, rng *rand.Rand) {
	t.Helper()
	s := open(t, cfg)
	defer s.Close()
	noOrphans(t, cfg, s)
	var next *assignment.Assignment
	if want == nil {
		if a, err := s.Read(t.Context(), "a"); !errors.Is(err, store.ErrNotFound) {
			t.Fatalf("read: %v, %v; want nothing", a, err)
		}
		next = storetest.First("a", s.ID(), 1000, 5, 100)
	} else {
		got, err := s.Read(t.Context(), "a")
		if err != nil || !storetest.Same(got, want) {
			t.Fatalf("read: %v, %v; want %v", got, err, want)
		}
		next = storetest.Next(want, 1000, .01, "x", rng)
	}
	if err := s.Write(t.Context(), next); err != nil {
		t.Fatalf("a later write: %v", err)
	}
	var g graveyard
	now := time.Now()
	for _, after := range []time.Duration{0, attemptGrace - 1, attemptGrace} {
		if err := s.sweep(now.Add(after), &g); err != nil {
			t.Fatal(err)
		}
	}
	if markers := noOrphans(t, cfg, s); markers != 0 {
		t.Errorf("%d markers are left", markers)
	}
}

// noOrphans checks that each piece is named by a marker or by a generation that
// the head still keeps, and returns how many markers there are.
func noOrphans(t *testing.T, cfg Config, s *Store) (markers int) {
	t.Helper()
	r := newRaw(cfg)
	defer r.Close()
	keys, err := r.Keys()
	if err != nil {
		t.Fatal(err)
	}
	named := make(map[string]bool)
	var head *record.Head
	if value, err := r.Get(s.layout.Head("a")); err != nil {
		t.Fatal(err)
	} else if value != nil {
		if head, err = s.layout.DecodeHead("a", value); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range keys {
		if prefix, ok := s.layout.MarkedChunks(key); ok {
			named[prefix] = true
			markers++
		}
		if g, ok := s.layout.GenerationOf("a", key); ok {
			if head == nil || g > head.Generation || g < head.Segments[0].First {
				t.Errorf("generation %d is there, the head %+v does not keep it", g, head)
			}
			value, err := r.Get(key)
			if err != nil {
				t.Fatal(err)
			}
			rec, err := s.layout.DecodeGeneration("a", record.KV{Key: key, Value: value})
			if err != nil {
				t.Fatal(err)
			}
			named[s.layout.AttemptChunks("a", g, rec.Attempt)] = true
		}
	}
	for _, key := range keys {
		if strings.HasPrefix(key, s.layout.Chunks("a")) && !named[key[:strings.LastIndexByte(key, '/')+1]] {
			t.Errorf("no record names %s", key)
		}
	}
	return markers
}

// disturb runs a write once for every request that it sends when nothing
// happens, each time with a fresh store, and the disturbance at that request.
func disturb(t *testing.T, sc scene, run func(t *testing.T, cfg Config, s *Store, base *assignment.Assignment, victim *Store, st *steps)) {
	setUp := func(t *testing.T, at int) (Config, *Store, *assignment.Assignment, *Store, *steps) {
		cfg, s, base := sc.setUp(t)
		st := &steps{at: at}
		cfg.dialOptions = st.options()
		victim := open(t, cfg)
		cfg.dialOptions = nil
		if base != nil { // it writes on what it has seen
			must(victim.Read(t.Context(), "a"))
		}
		return cfg, s, base, victim, st
	}
	_, s, base, victim, st := setUp(t, 0)
	if err := victim.Write(st.mark(t.Context()), sc.propose(s, base, "v")); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d requests", st.count)
	for at := 1; at <= st.count; at++ {
		t.Run(fmt.Sprintf("request %d", at), func(t *testing.T) {
			cfg, s, base, victim, st := setUp(t, at)
			run(t, cfg, s, base, victim, st)
		})
	}
}

// TestKilledAtEveryStep kills the writer before each request of a write, and
// between each request and its answer.
func TestKilledAtEveryStep(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 3))
	for _, sc := range scenes() {
		for _, answered := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/answered %v", sc.name, answered), func(t *testing.T) {
				moved := false
				disturb(t, sc, func(t *testing.T, cfg Config, s *Store, base *assignment.Assignment, victim *Store, st *steps) {
					next := sc.propose(s, base, "v")
					if answered {
						st.after = func() {}
					} else {
						st.before = func(any) error { return status.Error(codes.Aborted, "killed") }
					}
					if err := victim.Write(st.mark(t.Context()), next); err == nil {
						t.Fatal("the write of a dead process succeeded")
					}
					reader := open(t, cfg)
					want := base
					if a, err := reader.Read(t.Context(), "a"); err == nil && a.Generation() == next.Generation() {
						want, moved = next, true
					}
					check(t, cfg, want, rng)
				})
				if moved != answered {
					t.Errorf("the head had moved: %v, want %v", moved, answered)
				}
			})
		}
	}
}

// TestRivalAtEveryStep lets another process write the same generation before
// each request of a write: the other one wins, and nothing is mixed or left.
func TestRivalAtEveryStep(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 4))
	for _, sc := range scenes() {
		t.Run(sc.name, func(t *testing.T) {
			disturb(t, sc, func(t *testing.T, cfg Config, s *Store, base *assignment.Assignment, victim *Store, st *steps) {
				next, rival := sc.propose(s, base, "v"), sc.propose(s, base, "ri")
				st.before = func(any) error {
					if err := s.Write(t.Context(), rival); err != nil {
						t.Errorf("rival: %v", err)
					}
					return nil
				}
				var conflict *store.ConflictError
				err := victim.Write(st.mark(t.Context()), next)
				if !errors.As(err, &conflict) || conflict.Current != int64(rival.Generation()) {
					t.Errorf("error %v, want a conflict with %d", err, rival.Generation())
				}
				if markers := noOrphans(t, cfg, s); markers != 0 {
					t.Errorf("the loser has left %d markers", markers)
				}
				if a, err := victim.Read(t.Context(), "a"); err != nil || !storetest.Same(a, rival) {
					t.Errorf("the loser reads %v, %v", a, err)
				}
				check(t, cfg, rival, rng)
			})
		})
	}
}

// TestDeletedAtEveryStep deletes the job before each request of a write, and in
// a second round makes it anew at once.
func TestDeletedAtEveryStep(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 5))
	for _, sc := range scenes() {
		for _, anew := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/anew %v", sc.name, anew), func(t *testing.T) {
				disturb(t, sc, func(t *testing.T, cfg Config, s *Store, base *assignment.Assignment, victim *Store, st *steps) {
					put := func() {
						if _, err := s.PutJob(t.Context(), assignment.JobConfig{Name: "a"}, store.NoVersion); err != nil {
							t.Error(err)
						}
					}
					st.before = func(any) error {
						if err := s.DeleteJob(t.Context(), "a"); err != nil {
							t.Error(err)
						}
						if anew {
							put()
						}
						return nil
					}
					err := victim.Write(st.mark(t.Context()), sc.propose(s, base, "v"))
					switch {
					case !anew && !errors.Is(err, store.ErrNotFound):
						t.Errorf("error %v, want not found", err)
					case anew && err == nil && base == nil && st.at == 1:
						// It had not looked yet; the job that it writes to is the new one.
						check(t, cfg, must(s.Read(t.Context(), "a")), rng)
						return
					case anew && !errors.Is(err, store.ErrConflict):
						t.Errorf("error %v, want a conflict", err)
					}
					if !anew {
						put()
					}
					check(t, cfg, nil, rng)
				})
			})
		}
	}
}

func must(a *assignment.Assignment, err error) *assignment.Assignment {
	if err != nil {
		panic(err)
	}
	return a
}

// TestCollectedAtEveryStep lets a collector that takes the writer for dead come
// before each request of a write: the write fails, or it had no marker yet.
func TestCollectedAtEveryStep(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 6))
	for _, sc := range scenes() {
		t.Run(sc.name, func(t *testing.T) {
			disturb(t, sc, func(t *testing.T, cfg Config, s *Store, base *assignment.Assignment, victim *Store, st *steps) {
				next := sc.propose(s, base, "v")
				eaten := false
				st.before = func(any) error {
					eaten = noOrphans(t, cfg, s) > 0
					var g graveyard
					now := time.Now()
					for _, after := range []time.Duration{0, attemptGrace} {
						if err := s.sweep(now.Add(after), &g); err != nil {
							t.Error(err)
						}
					}
					return nil
				}
				want := next
				if err := victim.Write(st.mark(t.Context()), next); eaten {
					want = base
					if !errors.Is(err, store.ErrUnavailable) {
						t.Errorf("error %v, want unavailable", err)
					}
				} else if err != nil {
					t.Error(err)
				}
				check(t, cfg, want, rng)
			})
		})
	}
}
