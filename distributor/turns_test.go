package distributor

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc"
	"pgregory.net/rapid"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// However subscribers come, are done and go: no more is on its way than is allowed,
// slicelets do not wait for others, and everybody's turn comes.
func TestTurns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr := newTurns()
		tr.limit, tr.least = 100, 2
		jobs := []*job{{wake: make(chan struct{}, 1)}, {wake: make(chan struct{}, 1)}}
		now := time.UnixMilli(baseGen)
		type who struct {
			role  slicerv1.Role
			job   *job
			bytes int
			turn  bool
			until time.Time
		}
		all := map[uint64]*who{}
		// collect has the jobs hear of their turns.
		collect := func() {
			for _, j := range jobs {
				for _, id := range tr.come(now, j) {
					if w := all[id]; w != nil {
						w.turn, w.until = true, now.Add(turnFor)
					} else {
						tr.done(now, id)
					}
				}
			}
		}
		next := uint64(0)
		t.Repeat(map[string]func(*rapid.T){
			"come": func(t *rapid.T) {
				next++
				w := &who{role: slicerv1.Role(rapid.IntRange(1, 3).Draw(t, "role")), job: jobs[rapid.IntRange(0, 1).Draw(t, "job")], bytes: rapid.IntRange(1, 80).Draw(t, "bytes")}
				all[next] = w
				if w.turn = tr.take(now, next, w.role, w.job, w.bytes); w.turn {
					w.until = now.Add(turnFor)
				}
				if w.turn && tr.waits(next) {
					t.Fatal("it has its turn and waits for it")
				}
			},
			"done": func(t *rapid.T) {
				id := rapid.Uint64Range(0, next).Draw(t, "id") // nobody is 0
				tr.done(now, id)
				delete(all, id)
			},
			"time": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(t, "ms")) * time.Millisecond)
			},
			"": func(t *rapid.T) {
				collect()
				waiting, taken := len(tr.waiting), len(tr.taken)
				bytes, turns, slicelets, others := 0, 0, 0, 0
				for _, w := range all {
					switch {
					case w.turn && w.until.After(now):
						bytes, turns = bytes+w.bytes, turns+1
					case w.turn: // over, without having been done
					case w.role == slicerv1.Role_ROLE_SLICELET:
						slicelets++
					default:
						others++
					}
				}
				if turns != taken || slicelets+others != waiting {
					t.Fatalf("%d have their turn and %d wait, want %d and %d", taken, waiting, turns, slicelets+others)
				}
				if turns > tr.least && bytes > tr.limit {
					t.Fatalf("%d bytes are on their way to %d", bytes, turns)
				}
				if waiting > 0 && turns < tr.least {
					t.Fatalf("%d wait, and only %d have their turn", waiting, turns)
				}
				if _, next := tr.look(); waiting > 0 && (next.IsZero() || next.After(now.Add(turnFor))) {
					t.Fatalf("%d wait, and nobody looks before %s", waiting, next)
				}
			},
		})
		for range len(all) + 1 {
			now = now.Add(turnFor)
			collect()
		}
		for id, w := range all {
			if !w.turn {
				t.Fatalf("%d has waited in vain", id)
			}
		}
	})
}

// Slicelets are sent the whole before clerks that came earlier.
func TestTurnsOfSliceletsComeFirst(t *testing.T) {
	tr := newTurns()
	tr.limit, tr.least = 0, 1
	j := &job{wake: make(chan struct{}, 1)}
	now := time.UnixMilli(baseGen)
	const clerk, slicelet = slicerv1.Role_ROLE_CLERK, slicerv1.Role_ROLE_SLICELET
	for id, role := range []slicerv1.Role{clerk, clerk, slicelet, clerk, slicelet} {
		if tr.take(now, uint64(id), role, j, 1) != (id == 0) {
			t.Fatalf("%d has its turn, or the first has not", id)
		}
	}
	var order []uint64
	for id := uint64(0); len(order) < 4; id = order[len(order)-1] {
		tr.done(now, id)
		order = append(order, tr.come(now, j)...)
	}
	if fmt.Sprint(order) != "[2 4 1 3]" {
		t.Errorf("the order is %v", order)
	}
}

// Subscribers that do not acknowledge hold up the others for a while and no longer.
func TestStuckSubscribersGiveTheirTurnAway(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		f := n.assigner(t, "a1", assigner1)
		a := firstOf(t, testJob, testStore, baseGen, 100)
		d, err := newDistributor(Config{ID: "d1", Assigners: []string{assigner1}, DialOptions: n.dialOptions()}, n.lookup)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		d.turns.limit, d.turns.least = 0, 2
		n.serve(t, server, func(s *grpc.Server) { d.Register(s) }, ServerOptions()...)
		cc := n.connect(t, server)
		f.know(testJob)
		var stuck, others []*fakeSub
		for i := range 2 {
			s := subscribe(t, cc, clerkHello(fmt.Sprint("stuck-", i)), nil)
			s.mu.Lock()
			s.silent = true
			s.mu.Unlock()
			stuck = append(stuck, s)
		}
		f.set(a)
		for _, s := range stuck {
			same(t, s.holds(), a)
		}
		for i := range 20 {
			others = append(others, subscribe(t, cc, clerkHello(fmt.Sprint("c", i)), nil))
		}
		for _, s := range others {
			if s.holds() != nil {
				t.Error("somebody is sent the whole before its turn")
			}
		}
		time.Sleep(turnFor)
		for _, s := range others {
			same(t, s.holds(), a)
		}
		if waiting, _ := d.turns.look(); waiting != 0 {
			t.Errorf("%d wait", waiting)
		}
	})
}
