package slicelet

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/lease"
)

var stormSeed = flag.Uint64("storm.seed", 0, "seed of TestStorm instead of some; goroutines run as they like all the same")

const (
	stormTTL    = time.Second
	stormPoints = 16
)

// storm is real slicelets and real readers on a real lease store, in virtual time,
// among processes that die, are cut off and stop, while an assigner moves keys,
// and an oracle that looks at all of them every three milliseconds.
type storm struct {
	*realm
	keys [stormPoints]string

	mu      sync.Mutex
	rng     *rand.Rand
	calm    bool
	living  []*soul // members[i] is living[i].member
	zombies []*soul // killed for the assigner, and running all the same
	owners  [stormPoints]uint32
	tokens  [stormPoints]tokenSeen
	changes int
	looks   int
}

// soul is what the oracle knows of a process.
type soul struct {
	*member
	handles [stormPoints][]*handleSeen
	owned   [stormPoints]bool
	held    [stormPoints]bool // as its listener was told
	mu      sync.Mutex        // of held
}

type handleSeen struct {
	Handle
	broken bool // the key was not owned at some moment since
	dead   bool // it was found not to be valid
}

type tokenSeen struct {
	who   *soul
	token assignment.Generation
}

func (s *storm) roll(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rng.IntN(n)
}

// SlicesChanged keeps what the listener was told.
func (o *soul) SlicesChanged(_ context.Context, c Change) {
	o.mu.Lock()
	defer o.mu.Unlock()
	has := func(rs []Range, p int) bool {
		return slices.ContainsFunc(rs, func(s Range) bool { return s.Contains(assignment.Equal(stormPoints)[p]) })
	}
	for p := range o.held {
		o.held[p] = o.held[p] && !has(c.Departed, p) || has(c.Arrived, p)
	}
}

func (s *storm) begins(name string) *soul {
	o := &soul{}
	drift := .97 + .06*float64(s.roll(100))/100
	o.member = s.begin(name, func(m *member) {
		m.rate = drift
		m.line.delay = func() {
			d := 2
			if s.roll(20) == 0 && !s.isCalm() {
				d = 600
			}
			time.Sleep(time.Duration(s.roll(d*1000)) * time.Microsecond)
		}
	}, nil)
	o.s.Listen(o)
	return o
}

func (s *storm) isCalm() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calm
}

// next decides on an assignment and writes it.
func (s *storm) next() *assignment.Assignment {
	s.mu.Lock()
	defer s.mu.Unlock()
	tasks := make([]assignment.Task, len(s.living))
	for i, o := range s.living {
		tasks[i] = o.s.me
		tasks[i].Index = uint32(i)
	}
	var place assignment.Placement
	for p := range s.owners {
		if s.rng.IntN(6) == 0 {
			s.owners[p] = uint32(s.rng.IntN(len(s.living)))
		}
		start := assignment.Equal(stormPoints)[p]
		switch n := len(place.Starts); {
		case n == 0 || place.Owners[n-1] != s.owners[p] || s.rng.IntN(2) == 0: // or merged
			place.Starts, place.Owners = append(place.Starts, start), append(place.Owners, s.owners[p])
		}
	}
	g := assignment.Generation(1)
	if s.last != nil {
		g = s.last.Generation() + 1
	}
	a, err := assignment.Successor(s.last, assignment.Header{Job: "job", StoreID: 1, Generation: g}, tasks, place)
	if err != nil {
		s.t.Error(err)
		return s.last
	}
	s.last = a
	return a
}

// change moves keys: sometimes it is interrupted, and sometimes the assignment
// spreads late.
func (s *storm) change() {
	a := s.next()
	if late := s.roll(500); late < 100 || s.isCalm() {
		s.server.Put(a)
	} else {
		go func() {
			time.Sleep(time.Duration(late) * time.Millisecond)
			s.server.Put(a)
		}()
	}
	for {
		patience := 20 * time.Second
		if !s.isCalm() && s.roll(3) == 0 {
			patience = time.Duration(s.roll(1000)) * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(s.t.Context(), patience)
		_, err := lease.Advance(ctx, s.w, lease.Change{Job: "job", Token: s.token, Wanted: a.Generation(), Wait: 300 * time.Millisecond})
		cancel()
		if err == nil {
			s.mu.Lock()
			s.changes++
			s.mu.Unlock()
			return
		}
		if patience > 10*time.Second {
			s.t.Errorf("a change has not come to an end within %s: %v", patience, err)
			return
		}
	}
}

// fault does something to a process.
func (s *storm) fault() {
	i := s.roll(len(s.living))
	o := s.living[i]
	switch s.roll(6) {
	case 0: // cut off for a while
		o.line.off.Store(true)
		time.Sleep(time.Duration(s.roll(2500)) * time.Millisecond)
		o.line.off.Store(false)
	case 1: // as a process finds it that was stopped: time has passed
		o.skew.Add(int64(time.Duration(s.roll(1500)) * time.Millisecond))
	case 2: // ends in good order, and another begins
		s.replace(i)
		o.end()
	case 3: // killed
		s.replace(i)
		o.line.off.Store(true)
		o.end()
	case 4: // taken for dead, but it is only cut off, and goes on
		s.replace(i)
		o.line.off.Store(true)
		s.mu.Lock()
		s.zombies = append(s.zombies, o)
		s.mu.Unlock()
		time.Sleep(time.Duration(s.roll(2000)) * time.Millisecond)
		o.line.off.Store(false)
		time.Sleep(stormTTL)
		s.mu.Lock()
		s.zombies = slices.DeleteFunc(s.zombies, func(z *soul) bool { return z == o })
		s.mu.Unlock()
		o.end()
	}
}

func (o *soul) end() { _ = errors.Join(o.s.Close(), o.reader.Close()) }

func (s *storm) replace(i int) {
	o := s.begins(s.living[i].name)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.living[i] = o
}

// oracle looks at all processes at one moment.
func (s *storm) oracle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks++
	for p, key := range s.keys {
		var owner *soul
		var token assignment.Generation
		for _, o := range slices.Concat(s.living, s.zombies) {
			h := o.s.Handle(key)
			o.owned[p] = h.Owned()
			if h.Owned() {
				if owner != nil {
					s.t.Errorf("point %d is owned by %s and by %s", p, owner.name, o.name)
				}
				owner, token = o, h.FencingToken()
			}
			for _, seen := range o.handles[p] {
				seen.broken = seen.broken || !h.Owned()
				valid := seen.AssignedContinuously()
				if valid && (seen.broken || seen.dead || seen.FencingToken() != token) {
					s.t.Errorf("point %d: a handle of %s is valid over a break, or again", p, o.name)
				}
				seen.dead = seen.dead || !valid
			}
			if n := len(o.handles[p]); h.Owned() && (n == 0 || o.handles[p][n-1].dead || s.rng.IntN(500) == 0) {
				o.handles[p] = append(o.handles[p], &handleSeen{Handle: h})
			}
			o.handles[p] = o.handles[p][max(len(o.handles[p])-2, 0):]
		}
		if owner == nil {
			continue
		}
		if was := s.tokens[p]; token <= 0 || token < was.token || was.who != owner && token == was.token {
			s.t.Errorf("point %d: %s owns it with token %d, after %s with %d", p, owner.name, token, was.who.name, was.token)
		}
		s.tokens[p] = tokenSeen{owner, token}
		for _, o := range slices.Concat(s.living, s.zombies) {
			o.mu.Lock()
			if o != owner && o.held[p] {
				s.t.Errorf("point %d is owned by %s, and the listener of %s does not know", p, owner.name, o.name)
			}
			o.mu.Unlock()
		}
	}
}

// settled says that every task owns what is assigned to it.
func (s *storm) settled() error {
	for p, key := range s.keys {
		if o := s.living[s.owners[p]]; !o.s.IsAffinitized(key) {
			return fmt.Errorf("point %d is not owned by %s", p, o.name)
		}
	}
	return nil
}

func TestStorm(t *testing.T) {
	seeds := []uint64{1, 2, 3}
	if *stormSeed != 0 {
		seeds = []uint64{*stormSeed}
	}
	for _, seed := range seeds {
		synctest.Test(t, func(t *testing.T) { runStorm(t, seed) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func runStorm(t *testing.T, seed uint64) {
	s := &storm{realm: newRealm(t), rng: rand.New(rand.NewPCG(seed, 1))}
	s.ttl = stormTTL
	for p := range s.keys {
		s.keys[p] = keyIn(p, stormPoints)
	}
	for i := range 2 + seed%3 {
		s.living = append(s.living, s.begins(string(rune('a'+i))))
	}
	synctest.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			time.Sleep(3 * time.Millisecond)
			s.oracle()
		}
	})
	stormy, calm := context.WithTimeout(ctx, 20*time.Second)
	var weather sync.WaitGroup
	for range 2 {
		weather.Go(func() {
			for stormy.Err() == nil {
				time.Sleep(time.Duration(s.roll(600)) * time.Millisecond)
				s.fault()
			}
		})
	}
	for stormy.Err() == nil {
		s.change()
		time.Sleep(time.Duration(s.roll(200)) * time.Millisecond)
	}
	weather.Wait()
	calm()
	stormChanges := s.changes

	// Afterwards every change comes to its end, and unmoved keys never lose their owner.
	s.mu.Lock()
	s.calm = true
	s.mu.Unlock()
	time.Sleep(10 * stormTTL)
	s.change()
	time.Sleep(stormTTL)
	for range 20 {
		if err := s.settled(); err != nil {
			t.Error(err)
		}
		before := s.owners
		var handles [stormPoints]Handle
		for p, key := range s.keys {
			handles[p] = s.living[s.owners[p]].s.Handle(key)
		}
		s.change()
		time.Sleep(200 * time.Millisecond)
		for p, h := range handles {
			if stays := before[p] == s.owners[p]; h.AssignedContinuously() != stays {
				t.Errorf("point %d goes from %s to %s, its handle is valid: %t", p, s.living[before[p]].name, s.living[s.owners[p]].name, !stays)
			}
		}
	}
	cancel()
	wg.Wait()
	for _, o := range slices.Concat(s.living, s.zombies) {
		if err := errors.Join(o.s.Close(), o.reader.Close()); err != nil {
			t.Error(err)
		}
	}
	s.server.Stop()
	s.store.Close()
	t.Logf("seed %d: %d tasks, %d changes, %d of them in the storm, looked %d times; now at %s",
		seed, len(s.living), s.changes, stormChanges, s.looks, time.Since(s.start).Round(time.Second))
}
