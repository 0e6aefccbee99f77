package clerk_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/waittest"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/test/slicertest"
)

func static(t interface{ Fatal(...any) }, a *assignment.Assignment) *clerk.Clerk {
	c, err := clerk.New(clerk.Config{Job: a.Job(), Static: a})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// numbered are n keys.
func numbered(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("user/%d", i)
	}
	return keys
}

// fleet is the names of n tasks.
func fleet(n int) []string {
	tasks := make([]string, n)
	for i := range tasks {
		tasks[i] = fmt.Sprintf("task-%02d", i)
	}
	return tasks
}

// Each key is in one group, that of an owner, and there is one group a task.
func TestGroup(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tasks := fleet(rapid.IntRange(1, 30).Draw(t, "tasks"))
		places := []slicertest.Place{slicertest.Spread(tasks...)}
		cut := assignment.Equal(rapid.IntRange(1, 40).Draw(t, "slices"))
		for i, start := range cut {
			end := assignment.KeyspaceEnd
			if i+1 < len(cut) {
				end = cut[i+1]
			}
			own := rapid.SliceOfNDistinct(rapid.SampledFrom(tasks), 1, min(3, len(tasks)), rapid.ID[string]).Draw(t, "own")
			places = append(places, slicertest.Slice(assignment.Slice{Start: start, End: end}, own...))
		}
		a := slicertest.Assignment("job", places...)
		c := static(t, a)
		defer c.Close()
		long := strings.Repeat("x", assignment.MaxKeyLen+1)
		keys := rapid.SliceOfN(rapid.SampledFrom(append(numbered(200), long, "")), 0, 300).Draw(t, "keys")
		g := c.Group(keys)
		if g.Generation != a.Generation() {
			t.Errorf("generation %d", g.Generation)
		}
		got := slices.Clone(g.Unowned)
		for i, group := range g.ByTask {
			at, _ := a.Position(group.Task.Name)
			if i > 0 && g.ByTask[i-1].Task.Index >= group.Task.Index || len(group.Keys) == 0 {
				t.Errorf("group %d of task %s has %d keys", i, group.Task.Name, len(group.Keys))
			}
			order := 0
			for _, key := range group.Keys {
				if !a.Lookup(assignment.KeyOf(key)).Has(at) {
					t.Errorf("%q is no key of %s", key, group.Task.Name)
				}
				next := slices.Index(keys[order:], key)
				if next < 0 {
					t.Fatalf("keys of %s are out of order", group.Task.Name)
				}
				order += next + 1
			}
			got = append(got, group.Keys...)
		}
		want := slices.Clone(keys)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) || slices.Contains(g.Unowned, "") || slices.ContainsFunc(g.Unowned, func(k string) bool { return k != long }) {
			t.Errorf("grouped %d keys, of %d", len(got), len(want))
		}
	})
}

// Keys of one slice go to one of its owners, and in time to each.
func TestGroupChoosesAmongReplicas(t *testing.T) {
	c := static(t, slicertest.Assignment("job", slicertest.Slice(assignment.Keyspace, "a", "b", "c")))
	defer c.Close()
	seen := make(map[string]int)
	for range 600 {
		g := c.Group(numbered(20))
		if len(g.ByTask) != 1 {
			t.Fatalf("%d groups of the keys of one slice", len(g.ByTask))
		}
		seen[g.ByTask[0].Task.Name]++
	}
	for _, task := range []string{"a", "b", "c"} {
		if n := seen[task]; n < 100 || n > 300 { // 11 standard deviations
			t.Errorf("%s was chosen %d times of 600", task, n)
		}
	}
}

// An owner that drains is asked only if there is no other.
func TestGroupAvoidsDraining(t *testing.T) {
	tasks := []assignment.Task{
		{Name: "a", Incarnation: 1, Address: "a:1", Index: 0, Weight: 1, State: assignment.TaskDraining},
		{Name: "b", Incarnation: 1, Address: "b:1", Index: 1, Weight: 1, State: assignment.TaskRunning},
	}
	p := assignment.Placement{}
	p.Add(0, 0, 1)
	p.Add(assignment.KeyspaceEnd/2, 0)
	a, err := assignment.Successor(nil, assignment.Header{Job: "job", StoreID: 1, Generation: 1}, tasks, p)
	if err != nil {
		t.Fatal(err)
	}
	c := static(t, a)
	defer c.Close()
	for range 50 {
		for _, g := range c.Group(numbered(50)).ByTask {
			for _, key := range g.Keys {
				if alone := assignment.KeyOf(key) >= assignment.KeyspaceEnd/2; (g.Task.Name == "a") != alone {
					t.Fatalf("%s is asked for %s", g.Task.Name, key)
				}
			}
		}
	}
}

// As long as there is no assignment no key has an owner.
func TestGroupWithoutAssignment(t *testing.T) {
	env := slicertest.New(t)
	g := env.Clerk(clerk.Config{Job: "job"}).Group([]string{"a", "b"})
	if len(g.ByTask) != 0 || fmt.Sprint(g.Unowned) != "[a b]" || g.Generation != 0 {
		t.Errorf("%+v", g)
	}
}

// answerer is a server: it answers for keys that are its own, and refuses the others.
type answerer struct {
	*slicelet.Slicelet
	asked  *atomic.Int32
	before func() // the first call is answered
}

func (s answerer) ask(keys []string) (answers map[string]string, refused []string) {
	s.asked.Add(1)
	s.before()
	answers = make(map[string]string)
	for _, key := range keys {
		if s.Handle(key).Owned() {
			answers[key] = s.Task()
		} else {
			refused = append(refused, key)
		}
	}
	return answers, refused
}

// gather asks the owners of keys, each once, and again for those that were refused.
func gather(ctx context.Context, c *clerk.Clerk, keys []string, ask func(assignment.Task, []string) (map[string]string, []string)) (map[string]string, error) {
	all := make(map[string]string)
	for times := 0; len(keys) > 0; times++ {
		groups := c.Group(keys)
		if len(groups.Unowned) > 0 {
			return all, fmt.Errorf("%d keys have no owner", len(groups.Unowned))
		}
		var wg sync.WaitGroup
		var mu sync.Mutex
		var behind clerk.Refused
		keys = nil
		for _, g := range groups.ByTask {
			c.Requested()
			wg.Go(func() {
				answers, refused := ask(g.Task, g.Keys)
				mu.Lock()
				defer mu.Unlock()
				for key, answer := range answers {
					all[key] = answer
				}
				if len(refused) > 0 {
					behind = clerk.Refused{Job: c.Job(), Task: g.Task.Name, Times: times, Routed: groups.Generation}
					keys = append(refused, keys...) // the first is one that behind is about
				}
			})
		}
		wg.Wait()
		if len(keys) == 0 {
			break
		}
		if err := c.AwaitOwner(ctx, keys[0], behind); err != nil {
			return all, err
		}
	}
	return all, nil
}

// A thousand keys of 20 tasks are 20 calls. When a part of them moves in between, their owners
// answer for all keys, and the others are not asked again.
func TestGatherOverAMove(t *testing.T) {
	const n = 20
	env := slicertest.New(t)
	servers, asked := make(map[string]answerer), new(atomic.Int32)
	var first sync.Once
	move := func() {}
	for _, task := range fleet(n) {
		s := env.Slicelet(slicelet.Config{Job: "job", Task: task})
		servers[task] = answerer{s, asked, func() { first.Do(func() { move() }) }}
	}
	c := env.Clerk(clerk.Config{Job: "job", ClientID: "frontend"})
	keys := numbered(1000)
	ctx, cancel := context.WithTimeout(t.Context(), waittest.Patience)
	defer cancel()
	ask := func(task assignment.Task, keys []string) (map[string]string, []string) {
		return servers[task.Name].ask(keys)
	}
	check := func(calls int32) {
		t.Helper()
		all, err := gather(ctx, c, keys, ask)
		if err != nil || len(all) != len(keys) {
			t.Fatalf("%d answers, %v", len(all), err)
		}
		a := env.Assignment("job")
		for key, task := range all {
			if want := a.Lookup(assignment.KeyOf(key)).At(0).Name; task != want {
				t.Errorf("%s was answered by %s, want %s", key, task, want)
			}
		}
		if got := asked.Swap(0); got > calls {
			t.Errorf("%d calls, want at most %d", got, calls)
		}
	}
	first.Do(func() {})
	check(n)
	// The first call to arrive moves all that is task-00's, and the client does not know yet.
	first = sync.Once{}
	move = func() {
		release := env.Hold("frontend")
		var places []slicertest.Place
		a := env.Assignment("job")
		for s, r := range a.All() {
			if r.At(0).Name == "task-00" {
				places = append(places, slicertest.Slice(s, "task-19"))
			}
		}
		env.Assign("job", places...)
		time.AfterFunc(50*time.Millisecond, release)
	}
	// Calls that are sent again before the client has heard are refused again.
	check(n + 20)
}
