package slicertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/slicelet"
)

// everywhere runs a test on real time and in a bubble.
func everywhere(t *testing.T, do func(t *testing.T)) {
	t.Run("real", func(t *testing.T) { t.Parallel(); do(t) })
	t.Run("bubble", func(t *testing.T) { t.Parallel(); synctest.Test(t, do) })
}

func owner(c *clerk.Clerk, key string) string {
	if r := c.Lookup(key); r.Len() > 0 {
		return r.At(0).Name
	}
	return "none"
}

// ears is a listener that notes what it is told, slowly.
type ears struct {
	mu    sync.Mutex
	heard []string
}

func (l *ears) SlicesChanged(_ context.Context, c slicelet.Change) {
	time.Sleep(20 * time.Millisecond)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range c.Arrived {
		l.heard = append(l.heard, fmt.Sprintf("+%v", r.Slice))
	}
	for _, r := range c.Departed {
		l.heard = append(l.heard, fmt.Sprintf("-%v", r.Slice))
	}
}

func (l *ears) all() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.heard, " ")
}

// When Assign returns, all know, the listeners too.
func TestAssign(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		env := New(t)
		a := env.Slicelet(slicelet.Config{Job: "job", Task: "a"})
		l := &ears{}
		a.Listen(l)
		b := env.Slicelet(slicelet.Config{Job: "job", Task: "b"})
		c := env.Clerk(clerk.Config{Job: "job"})
		for i := range 20 {
			to := []string{"a", "b"}[i%2]
			g := env.Assign("job", Spread("a", "b"), Key("ada", to))
			if got := owner(c, "ada"); got != to || c.Assignment().Generation() != g {
				t.Fatalf("generation %d: the clerk has ada at %s, want %s", g, got, to)
			}
			if a.IsAffinitized("ada") != (to == "a") || b.IsAffinitized("ada") != (to == "b") {
				t.Fatalf("generation %d: a has it: %t, b: %t", g, a.IsAffinitized("ada"), b.IsAffinitized("ada"))
			}
		}
		k := assignment.KeyOf("ada")
		ada := assignment.Slice{Start: k, End: k + 1}.String()
		if home := k < assignment.KeyspaceEnd/2; home && strings.Count(l.all(), "-"+ada) != 10 || !home && strings.Count(l.all(), "+"+ada) != 10 {
			t.Errorf("the listener has heard %s", l.all())
		}
	})
}

// Before the first Assign keys are spread over the tasks that run; a task that starts gets none.
func TestSpread(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		env := New(t)
		c := env.Clerk(clerk.Config{Job: "job"}) // it waits for the first task
		b := env.Slicelet(slicelet.Config{Job: "job", Task: "b"})
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err := c.Ready(ctx); err != nil {
			t.Fatal(err)
		}
		a := env.Slicelet(slicelet.Config{Job: "job", Task: "a", Starting: true})
		if n := len(b.Slices()); n != 1 || b.Slices()[0] != assignment.Keyspace {
			t.Fatalf("b has %v while a starts", b.Slices())
		}
		a.Started()
		if err := a.Ready(ctx); err != nil {
			t.Fatal(err)
		}
		for len(a.Slices()) == 0 {
			time.Sleep(time.Millisecond)
		}
		if got := a.Slices()[0]; got.Start != 0 || got.End != assignment.KeyspaceEnd/2 {
			t.Errorf("a has %v", got)
		}
	})
}

// A task that drains gives its keys away and ends without an error; one that is closed keeps them
// until it is declared dead.
func TestDrainAndExpire(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		env := New(t)
		a, b := env.Slicelet(slicelet.Config{Job: "job", Task: "a"}), env.Slicelet(slicelet.Config{Job: "job", Task: "b"})
		env.Slicelet(slicelet.Config{Job: "job", Task: "c"})
		c := env.Clerk(clerk.Config{Job: "job"})
		env.Assign("job", Spread("a", "b"), Key("ada", "a"))
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err := errors.Join(a.Drain(ctx), a.Close()); err != nil {
			t.Fatal(err)
		}
		if got := owner(c, "ada"); got != "b" && got != "c" {
			t.Errorf("ada is at %s after the drain", got)
		}
		env.Assign("job", Key("ada", "b"))
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		env.Assign("job", Key("bob", "c"))
		if got := owner(c, "ada"); got != "b" {
			t.Errorf("ada is at %s after b has been closed", got)
		}
		env.Expire("job", "b")
		if got := owner(c, "ada"); got != "c" {
			t.Errorf("ada is at %s after b has been declared dead", got)
		}
		back := env.Slicelet(slicelet.Config{Job: "job", Task: "b"})
		if len(back.Slices()) != 0 {
			t.Errorf("b is back and owns %v", back.Slices())
		}
	})
}

// What is held stays behind, for as long as the test likes.
func TestHold(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		env := New(t)
		a := env.Slicelet(slicelet.Config{Job: "job", Task: "a"})
		env.Assign("job", Spread("a", "b"), Key("ada", "b"))
		c, late := env.Clerk(clerk.Config{Job: "job"}), env.Clerk(clerk.Config{Job: "job", ClientID: "late"})
		releaseLate, releaseA := env.Hold("late"), env.Hold("a")
		env.Assign("job", Key("ada", "a"))
		if owner(c, "ada") != "a" || owner(late, "ada") != "b" || a.IsAffinitized("ada") {
			t.Errorf("at %s, for the held clerk at %s, and the held task owns it: %t", owner(c, "ada"), owner(late, "ada"), a.IsAffinitized("ada"))
		}
		releaseA()
		if !a.IsAffinitized("ada") || owner(late, "ada") != "b" {
			t.Error("the task has been let go, and nothing else")
		}
		releaseLate()
		releaseLate() // as good as once
		if owner(late, "ada") != "a" {
			t.Error("the clerk has been let go")
		}
	})
}

// failing is a test that may fail.
type failing struct {
	testing.TB
	said string
}

func (f *failing) Helper()        {}
func (f *failing) Cleanup(func()) {}
func (f *failing) Fatalf(format string, args ...any) {
	f.said = fmt.Sprintf(format, args...)
	panic(f)
}

// A mistake fails the test with the name of what is wrong, and leaves all as it was.
func TestMistakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &failing{TB: t}
		env := New(f)
		defer env.Close()
		env.Assign("job", Spread("a"))
		fails := func(want string, do func()) {
			t.Helper()
			defer func() {
				if recover() != f || !strings.Contains(f.said, want) {
					t.Errorf("%q, want something about %q", f.said, want)
				}
			}()
			do()
		}
		fails("job name", func() { env.Assign("Job", Spread("a")) })
		fails("task name", func() { env.Assign("job", Key("k", "b c")) })
		fails("task", func() { env.Expire("job", "z") })
		fails("task address", func() { env.Slicelet(slicelet.Config{Job: "job", Task: "t", Address: "nowhere"}) })
		fails("taken", func() {
			env.Slicelet(slicelet.Config{Job: "job", Task: "twice"})
			env.Slicelet(slicelet.Config{Job: "job", Task: "twice"})
		})
		fails("address already in use", func() { env.Listen("x"); env.Listen("x") })
		s := env.Slicelet(slicelet.Config{Job: "job", Task: "slow"})
		s.Listen(never{})
		fails(`"slow"`, func() { env.Assign("job", Key("k", "slow")) })
		if a := env.Assignment("job"); a.Lookup(assignment.KeyOf("k")).At(0).Name != "slow" {
			t.Errorf("%v", a)
		}
	})
}

// never is a listener that returns only when it must.
type never struct{}

func (never) SlicesChanged(ctx context.Context, _ slicelet.Change) { <-ctx.Done() }

// Programs that are given an address only find it.
func TestLoopback(t *testing.T) {
	env := New(t)
	env.Assign("job", Spread("a"))
	c := env.Clerk(clerk.Config{Job: "job", Distributors: []string{env.Loopback()}})
	if owner(c, "k") != "a" {
		t.Error("not found")
	}
}

// Clerks have indexes, so that subsets work.
func TestIndexes(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		env := New(t)
		env.Assign("job", Spread("a", "b", "c", "d"))
		for want := range 3 {
			c := env.Clerk(clerk.Config{Job: "job", Subset: clerk.SubsetConfig{Size: 2}})
			for {
				changed := c.Changed()
				if i, known := c.Subset().Index(); known {
					if i != want {
						t.Errorf("index %d, want %d", i, want)
					}
					break
				}
				<-changed
			}
		}
	})
}

// The network joins what listens with what dials, and nothing else.
func TestNetwork(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		env := New(t)
		lis := env.Listen("a")
		got := make(chan string)
		go func() {
			c, err := lis.Accept()
			if err != nil {
				got <- err.Error()
				return
			}
			text, _ := io.ReadAll(c)
			got <- string(text)
		}()
		c, err := env.DialContext(t.Context(), "tcp", lis.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write([]byte("hello"))
		_ = c.Close()
		if text := <-got; text != "hello" {
			t.Error(text)
		}
		_ = lis.Close()
		if _, err := env.DialContext(t.Context(), "tcp", Address("a")); err == nil {
			t.Error("connected to what is closed")
		}
		_ = env.Listen("a").Close()
	})
}

// Static clerks and slicelets need no environment, and start nothing that could be late.
func TestStatic(t *testing.T) {
	a := Assignment("job", Spread("a", "b"), Key("ada", "b"))
	c, err := clerk.New(clerk.Config{Job: "job", Static: a})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := slicelet.New(slicelet.Config{Job: "job", Task: "b", Static: a})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	other, err := slicelet.New(slicelet.Config{Job: "job", Task: "c", Address: "c.test:80", Static: a})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if owner(c, "ada") != "b" || !s.IsAffinitized("ada") || !s.Handle("ada").AssignedContinuously() || other.IsAffinitized("ada") {
		t.Error("not as the assignment says")
	}
	for _, ready := range []func(context.Context) error{c.Ready, s.Ready} {
		if err := ready(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if c.Mode() != assignment.Affinity || s.Mode() != assignment.Affinity {
		t.Errorf("modes %v and %v", c.Mode(), s.Mode())
	}
	for _, cfg := range []clerk.Config{{Job: "other", Static: a}, {Job: "job", Static: a, Distributors: []string{"d:1"}}, {Job: "job", Static: a, CacheFile: "f"}} {
		if _, err := clerk.New(cfg); err == nil || !strings.Contains(err.Error(), "static") {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}

// A hundred tests at the same time do not know of each other.
func TestParallel(t *testing.T) {
	var done atomic.Int32
	t.Run("all", func(t *testing.T) {
		for i := range 100 {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				env := New(t)
				for _, task := range []string{"a", "b"} {
					env.Slicelet(slicelet.Config{Job: "job", Task: task})
				}
				c := env.Clerk(clerk.Config{Job: "job"})
				want := []string{"a", "b"}[i%2]
				env.Assign("job", Key("ada", want))
				if got := owner(c, "ada"); got != want {
					t.Errorf("at %s", got)
				}
				done.Add(1)
			})
		}
	})
	if done.Load() != 100 {
		t.Errorf("%d of 100 ran to their end", done.Load())
	}
}

// BenchmarkStart is what a test pays: an environment with two slicelets and a clerk that are
// ready, and its end.
func BenchmarkStart(b *testing.B) {
	for range b.N {
		env := New(b)
		for _, task := range []string{"a", "b"} {
			env.Slicelet(slicelet.Config{Job: "job", Task: task})
		}
		env.Clerk(clerk.Config{Job: "job"})
		env.Close()
	}
}
