package suite

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slicer-project/slicer/assignment"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"github.com/slicer-project/slicer/test/conformance/line"
)

func clerkChecks() []Check {
	return []Check{
		{Name: "hash", Ref: refClerk, run: checkHash,
			Text: "A key's slice key is XXH64 with seed 0 of its UTF-8 bytes, shifted right by one."},
		{Name: "boundaries", Ref: refClerk, run: checkBoundaries,
			Text: "A slice has the key at its start, and not the one at its end."},
		{Name: "replicas", Ref: refClerk, run: checkReplicas,
			Text: "All owners of a slice are found, and requests go to each of them, and to no other task."},
		{Name: "draining", Ref: refClerk, run: checkDraining,
			Text: "A task that drains, by a Status, gets no request that another owner can take, and what only it owns."},
		{Name: "draining-other", Ref: refClerk, run: checkDrainingOther,
			Text: "A condition of another incarnation, and one that the next Status leaves out, count no more."},
		{Name: "no-assignment", Ref: refClerk, run: checkNoAssignment,
			Text: "While there is no assignment a key has no owner."},
		{Name: "client-index", Ref: refWatch, run: checkClientIndex,
			Text: "The client index that a Distributor has given is in later hellos, and stays when a Status has none."},
		{Name: "reports-not", Ref: refWatch, run: checkNoReports,
			Text: "A clerk sends no reports, which are a slicelet's."},
	}
}

// Vector is a key and its slice key.
type Vector struct {
	Key      string `json:"key"`
	SliceKey string `json:"slice_key"`
}

// Vectors are of all lengths that XXH64 treats differently.
func Vectors() (out []Vector) {
	keys := []string{"", "a", "ab", "abc", "abcd", "user/4711", "Ada", "Grüße", "鍵", "🔑", "\u0000", "a\nb", `"quoted"`}
	for _, n := range []int{7, 8, 9, 15, 16, 31, 32, 33, 63, 64, 100, 1000, assignment.MaxKeyLen} {
		keys = append(keys, strings.Repeat("0123456789abcdef", n/16+1)[:n])
	}
	for _, k := range keys {
		out = append(out, Vector{k, assignment.KeyOf(k).String()})
	}
	return out
}

func checkHash(t *T) {
	s := t.run()
	vectors := Vectors()
	keys := make([]string, len(vectors))
	for i, v := range vectors {
		keys[i] = v.Key
	}
	got := s.do(line.Request{Op: "hash", Keys: keys}).SliceKeys
	if len(got) != len(keys) {
		t.faultAt(refDriver, fmt.Sprintf("%d slice keys", len(keys)), fmt.Sprint(len(got)))
	}
	for i, v := range vectors {
		if got[i] != v.SliceKey {
			t.fault(fmt.Sprintf("slice key %s of the key %q", v.SliceKey, clip(v.Key, 40)), got[i])
		}
	}
}

func (s *session) lookup(key string) []string {
	got := s.do(line.Request{Op: "lookup", Keys: []string{key}}).Owners
	if len(got) != 1 {
		s.t.faultAt(refDriver, "owners of one key", jsonOf(got))
	}
	return got[0]
}

func checkBoundaries(t *T) {
	s, _, w := t.begin()
	st := storyOf(w)
	var a *assignment.Assignment
	for i := range 6 {
		// The slice of the key alone, and those on both sides, which begin and end at it.
		key := fmt.Sprintf("key-%d", i)
		k := assignment.KeyOf(key)
		var p assignment.Placement
		p.Add(0, 0)
		p.Add(k-1, 1)
		p.Add(k, 2)
		p.Add(k+1, 3)
		a = st.assign(a, p)
		w.put(a)
		w.wantTaken(a, "a whole assignment")
		if got := s.lookup(key); !slices.Equal(got, []string{"task-c"}) {
			t.fault(fmt.Sprintf("task-c as the owner of %q, whose slice key %s is where the slice begins", key, k), fmt.Sprint(got))
		}
		// One that ends at the key.
		p = assignment.Placement{}
		p.Add(0, 0)
		p.Add(k, 1)
		a = st.assign(a, p)
		w.put(a)
		w.wantTaken(a, "a whole assignment")
		if got := s.lookup(key); !slices.Equal(got, []string{me}) {
			t.fault(fmt.Sprintf("%s as the owner of %q, at whose slice key %s the slice before ends", me, key, k), fmt.Sprint(got))
		}
		p = assignment.Placement{}
		p.Add(0, 0)
		p.Add(k+1, 1)
		a = st.assign(a, p)
		w.put(a)
		w.wantTaken(a, "a whole assignment")
		if got := s.lookup(key); !slices.Equal(got, []string{"task-a"}) {
			t.fault(fmt.Sprintf("task-a as the owner of %q, whose slice key %s is the last of the slice", key, k), fmt.Sprint(got))
		}
	}
}

// replicated has a clerk take an assignment in which each slice has three owners, but for the
// last, which has one, task-d.
func (t *T) replicated() (*session, *watch, *assignment.Assignment) {
	s, _, w := t.begin()
	a := storyOf(w).assign(nil, slicesOf(8, func(i int) []uint32 {
		if i == 7 {
			return []uint32{3}
		}
		return []uint32{uint32(i % 4), uint32(i+1) % 4, uint32(i+2) % 4}
	}))
	w.put(a)
	w.wantTaken(a, "an assignment with replicas")
	return s, w, a
}

func (s *session) pick(key string, n int) map[string]int {
	return s.do(line.Request{Op: "pick", Key: key, N: n}).Picked
}

func checkReplicas(t *T) {
	s, _, a := t.replicated()
	s.wantView(a, "after an assignment with replicas")
	const requests = 300
	key := "key-1"
	got := s.pick(key, requests)
	n := 0
	for task := range a.Lookup(assignment.KeyOf(key)).All() {
		// A third each; where it is drawn at random far more than a tenth, almost always.
		if got[task.Name] < requests/10 {
			t.fault(fmt.Sprintf("requests for %q that are spread over its three owners, %s among them", key, task.Name), fmt.Sprint(got))
		}
		n += got[task.Name]
	}
	if n != requests {
		t.fault(fmt.Sprintf("all requests for %q sent to its owners", key), fmt.Sprint(got))
	}
}

// condition is that of a task that drains.
func condition(a *assignment.Assignment, task string) *slicerv1.TaskCondition {
	pos, _ := a.Position(task)
	return &slicerv1.TaskCondition{Task: task, Incarnation: a.Task(pos).Incarnation, Draining: true}
}

// twoOwners is a key that task-d owns, and others do.
func twoOwners(a *assignment.Assignment) string {
	for i := 0; ; i++ {
		if key := keyOf(a, "task-d", i); a.Lookup(assignment.KeyOf(key)).Len() == 3 {
			return key
		}
	}
}

// alone is a key that task-d owns alone.
func alone(a *assignment.Assignment) string {
	for i := 0; ; i++ {
		if key := keyOf(a, "task-d", i); a.Lookup(assignment.KeyOf(key)).Len() == 1 {
			return key
		}
	}
}

func checkDraining(t *T) {
	s, w, a := t.replicated()
	m := greeting()
	m.Conditions = []*slicerv1.TaskCondition{condition(a, "task-d")}
	w.status(m)
	key := twoOwners(a)
	t.eventually(fmt.Sprintf("no request for %q sent to task-d, which drains and is one of three owners", key), func() (bool, string) {
		got := s.pick(key, 100)
		return got["task-d"] == 0 && len(got) == 2, fmt.Sprint(got)
	})
	key = alone(a)
	if got := s.pick(key, 100); got["task-d"] != 100 {
		t.fault(fmt.Sprintf("requests for %q sent to task-d, which alone owns it, though it drains", key), fmt.Sprint(got))
	}
	// The next assignment does not make it forget.
	b := build(a, assignment.Header{Job: job, StoreID: store, Generation: a.Generation() + 1}, storyOf(w).tasks(), slicesOf(8, func(i int) []uint32 { return []uint32{3, uint32(i % 3)} }))
	w.delta(a, b)
	w.wantTaken(b, "a delta")
	key = keyOf(b, "task-d", 0)
	if got := s.pick(key, 100); got["task-d"] != 0 {
		t.fault(fmt.Sprintf("no request for %q sent to task-d, which still drains", key), fmt.Sprint(got))
	}
}

func checkDrainingOther(t *T) {
	s, w, a := t.replicated()
	key := twoOwners(a)
	all := func(what string) {
		t.eventually(fmt.Sprintf("requests for %q sent to all three owners, as %s", key, what), func() (bool, string) {
			got := s.pick(key, 150)
			return len(got) == 3, fmt.Sprint(got)
		})
	}
	m := greeting()
	other := condition(a, "task-d")
	other.Incarnation++
	m.Conditions = []*slicerv1.TaskCondition{other}
	w.status(m)
	time.Sleep(100 * time.Millisecond)
	all("the condition is that of another incarnation")
	m = greeting()
	m.Conditions = []*slicerv1.TaskCondition{condition(a, "task-d")}
	w.status(m)
	t.eventually(fmt.Sprintf("no request for %q sent to task-d, which drains", key), func() (bool, string) {
		got := s.pick(key, 100)
		return got["task-d"] == 0, fmt.Sprint(got)
	})
	w.status(greeting())
	all("the newest Status does not have the condition any more")
}

func checkNoAssignment(t *T) {
	s, _, w := t.begin()
	if got := s.lookup("key-1"); len(got) != 0 {
		t.fault("no owner while there is no assignment", fmt.Sprint(got))
	}
	a := storyOf(w).chain(1)[0]
	w.put(a)
	w.wantTaken(a, "the first assignment")
	s.comesToView(a, "after it came")
}

func checkClientIndex(t *T) {
	_, d, w, _ := t.give(1)
	if w.hello().ClientIndex != nil {
		t.fault("a first Hello without a client_index, as none has been given", show(w.first))
	}
	m := greeting()
	m.ClientIndex = new(uint32(7))
	w.status(m)
	w.status(greeting())
	// It has read both by the time that it has acknowledged what follows.
	next := storyOf(w).chain(2)[1]
	w.put(next)
	w.wantTaken(next, "a whole assignment")
	w.finish(errEnds)
	w = d.accept()
	if got := w.hello(); got.ClientIndex == nil || got.GetClientIndex() != 7 {
		t.fault("a Hello with client_index 7, as a Distributor has given", show(w.first))
	}
}

func checkNoReports(t *T) {
	_, _, w, _ := t.give(1)
	m := greeting()
	m.ReportIntervalMs = 100
	w.status(m)
	if w.report(700*time.Millisecond, func(report) bool { return true }) != nil {
		t.fault("no Report of a clerk", "one")
	}
}
