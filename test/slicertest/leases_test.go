package slicertest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/lease/remote"
	"github.com/slicer-project/slicer/slicelet"
)

// owners are the tasks of these that own a key now, by name.
func owners(key string, all ...*slicelet.Slicelet) (names string) {
	for _, s := range all {
		if s.Handle(key).Owned() {
			names += s.Task()
		}
	}
	return names
}

// When Assign returns, the change is in force: the key has one owner, its handles are good and its
// tokens grow.
func TestConsistentAssign(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		env := New(t)
		env.Consistent("job")
		a, b := env.Slicelet(slicelet.Config{Job: "job", Task: "a"}), env.Slicelet(slicelet.Config{Job: "job", Task: "b"})
		l := &ears{}
		a.Listen(l)
		c := env.Clerk(clerk.Config{Job: "job"})
		if a.Mode() != assignment.Consistent || len(a.Slices()) != 1 || len(b.Slices()) != 1 {
			t.Fatalf("mode %s, a owns %v, b %v", a.Mode(), a.Slices(), b.Slices())
		}
		var token assignment.Generation
		for i := range 20 {
			to := []*slicelet.Slicelet{a, b}[i%2]
			g := env.Assign("job", Spread("a", "b"), Key("ada", to.Task()))
			if got := owners("ada", a, b); got != to.Task() || owner(c, "ada") != to.Task() {
				t.Fatalf("generation %d: ada is owned by %q, and the clerk has it at %s, want %s", g, got, owner(c, "ada"), to.Task())
			}
			h := to.Handle("ada")
			if !h.AssignedContinuously() || i > 0 && h.FencingToken() <= token {
				t.Fatalf("generation %d: continuous %t, token %d after %d", g, h.AssignedContinuously(), h.FencingToken(), token)
			}
			token = h.FencingToken()
		}
		if l.all() == "" {
			t.Error("the listener has heard nothing")
		}
	})
}

// A task that has lost its leases owns nothing, its listeners know, and others may have its keys; it
// gets leases again when the test says so, and what it believed before is over.
func TestLose(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		env := New(t)
		env.Consistent("job")
		a, b := env.Slicelet(slicelet.Config{Job: "job", Task: "a"}), env.Slicelet(slicelet.Config{Job: "job", Task: "b"})
		env.Assign("job", Spread("a"))
		l := &ears{}
		a.Listen(l)
		env.Assign("job", Spread("a"))
		stays, goes := a.Handle("bob"), a.Handle("ada")
		regain := env.Lose("a")
		if got := l.all(); owners("ada", a, b) != "" || a.Slices() != nil || !strings.HasSuffix(got, " -"+assignment.Keyspace.String()) {
			t.Errorf("ada is owned by %q, a owns %v, its listener has heard %q", owners("ada", a, b), a.Slices(), got)
		}
		env.Assign("job", Key("ada", "b"))
		if owners("ada", a, b) != "b" || owners("bob", a, b) != "" {
			t.Errorf("ada is owned by %q, bob by %q", owners("ada", a, b), owners("bob", a, b))
		}
		regain()
		if owners("ada", a, b) != "b" || owners("bob", a, b) != "a" {
			t.Errorf("ada is owned by %q, bob by %q", owners("ada", a, b), owners("bob", a, b))
		}
		if stays.AssignedContinuously() || goes.AssignedContinuously() || b.Handle("ada").FencingToken() <= goes.FencingToken() {
			t.Error("a handle outlives the lease, or a later owner has no higher token")
		}
	})
}

// No lease is lost because time passes, and drains end as they do in affinity mode.
func TestLeasesLast(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		env := New(t)
		env.Consistent("job")
		a := env.Slicelet(slicelet.Config{Job: "job", Task: "a"})
		env.Assign("job", Spread("a"))
		h := a.Handle("ada")
		if t.Name() == "TestLeasesLast/bubble" {
			time.Sleep(2 * lease.MaxTTL)
		}
		b := env.Slicelet(slicelet.Config{Job: "job", Task: "b"})
		env.Assign("job", Key("bob", "b"))
		if !h.AssignedContinuously() {
			t.Fatal("the lease ran out")
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err := errors.Join(a.Drain(ctx), a.Close()); err != nil {
			t.Fatal(err)
		}
		env.Assign("job", Key("bob", "b"))
		if owners("ada", a, b) != "b" {
			t.Errorf("ada is owned by %q", owners("ada", a, b))
		}
		back := env.Slicelet(slicelet.Config{Job: "job", Task: "a"})
		env.Assign("job", Key("ada", "a"))
		if owners("ada", back, b) != "a" {
			t.Errorf("ada is owned by %q", owners("ada", back, b))
		}
	})
}

// A program that makes its slicelet itself has leases of the environment, or reaches them as it does
// in earnest.
func TestLeasesOfPrograms(t *testing.T) {
	env := New(t)
	env.Consistent("job")
	conn, err := grpc.NewClient(env.Loopback(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	far, err := lease.NewReader(lease.Config{Readers: remote.New(conn)})
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	for task, leases := range map[string]*lease.Reader{"near": env.Leases("near"), "far": far} {
		s, err := slicelet.New(slicelet.Config{Job: "job", Task: task, Address: Address(task), Leases: leases,
			Distributors: env.Distributors(), DialOptions: env.DialOptions()})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err := s.Ready(ctx); err != nil {
			t.Fatal(err)
		}
		env.Assign("job", Spread(task))
		for !s.Handle("ada").AssignedContinuously() {
			if time.Sleep(time.Millisecond); ctx.Err() != nil {
				t.Fatalf("%s owns nothing", task)
			}
		}
	}
}

// What is not possible in consistent mode is refused.
func TestConsistentRefuses(t *testing.T) {
	env := Start()
	defer env.Close()
	env.Slicelet(slicelet.Config{Job: "affine", Task: "a"})
	env.Consistent("job")
	for name, do := range map[string]func(){
		"mode of a job with a task": func() { env.Consistent("affine") },
		"name":                      func() { env.Consistent("No such name") },
		"replicas":                  func() { env.Assign("job", Spread("a"), Key("ada", "a", "b")) },
		"task without leases":       func() { env.Lose("a") },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: allowed", name)
				}
			}()
			do()
		}()
	}
}
