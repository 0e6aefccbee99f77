package slicelet

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/lease"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

func TestConsistentMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRealm(t, "a", "b")
		defer r.stop()
		a, b := r.member("a"), r.member("b")
		first := r.put("aabb")
		r.wantOwners("----") // assigned, but not in force
		r.advance()
		r.wantOwners("aabb")
		for _, m := range r.members {
			if err := m.s.Ready(t.Context()); err != nil || m.s.Mode() != assignment.Consistent {
				t.Errorf("%s: Ready: %v, mode %s", m.name, err, m.s.Mode())
			}
		}
		if got := a.s.Slices(); len(got) != 2 || quarters(fromTo(othersIn(got, ""), othersIn(got, ""))) != "01" {
			t.Errorf("a's slices are %v", got)
		}
		stays, goes := a.s.Handle(keyIn(0, 4)), a.s.Handle(keyIn(1, 4))
		if stays.FencingToken() != first || goes.FencingToken() != first {
			t.Errorf("tokens %d and %d, want %d", stays.FencingToken(), goes.FencingToken(), first)
		}
		// The slicelets know the next assignment; it is not in force.
		second := r.put("abba")
		r.wantOwners("aabb")
		r.advance()
		r.wantOwners("abba")
		if !stays.AssignedContinuously() || goes.AssignedContinuously() {
			t.Error("handles do not tell the key that went from the one that stayed")
		}
		if h := b.s.Handle(keyIn(1, 4)); h.FencingToken() != second {
			t.Errorf("the new owner's token is %d, want %d", h.FencingToken(), second)
		}
		third := r.put("aabb")
		r.advance()
		r.wantOwners("aabb")
		if again := a.s.Handle(keyIn(1, 4)); !stays.AssignedContinuously() || goes.AssignedContinuously() || again.FencingToken() != third {
			t.Errorf("a key that was away is taken for one that never was: %+v", again)
		}
		if a.s.Handle(keyIn(0, 4)).FencingToken() != first {
			t.Error("the token of a key that stayed has changed")
		}
		if got, want := a.told.take(), []string{"+01 -", "+ -1", "+3 -", "+ -3", "+1 -"}; !slices.Equal(got, want) {
			t.Errorf("a's listener was told %q, want %q", got, want)
		}
	})
}

// Assignments of other slice boundaries, while the bridge is held.
func TestSplitsAndMergesKeepHandles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRealm(t, "a", "b")
		defer r.stop()
		a := r.member("a")
		r.put("aaab")
		r.advance()
		h := a.s.Handle(keyIn(2, 4))
		for _, owners := range []string{"aaaaaabb", "ababaabb", "aabb", "ab", "bbbbaabb"} {
			r.put(owners)
			r.advance()
			if stays := owners != "aabb" && owners != "ab"; h.AssignedContinuously() != stays {
				t.Fatalf("after %s the handle is valid: %t", owners, !stays)
			}
			if !h.AssignedContinuously() {
				r.put("aaab")
				r.advance()
				h = a.s.Handle(keyIn(2, 4))
			}
		}
		if got := a.told.take(); len(got) == 0 {
			t.Error("nothing was told")
		}
	})
}

// The lease store cannot be reached: at the deadline, and not before, nothing is owned
// any more, the listener is told, and only then can another task own it.
func TestLostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRealm(t, "a", "b")
		defer r.stop()
		a := r.member("a")
		r.put("aabb")
		r.advance()
		a.told.take()
		h := a.s.Handle(keyIn(0, 4))
		a.line.off.Store(true)
		cut := time.Now()
		var lost, told time.Duration
		go func() {
			for told == 0 {
				time.Sleep(time.Millisecond)
				if lost == 0 && !h.AssignedContinuously() {
					lost = time.Since(cut)
				}
				if a.told.any() {
					told = time.Since(cut)
				}
			}
		}()
		r.put("bbbb")
		r.advance()
		if took := time.Since(cut); lost == 0 || lost > ttl*9/10 || lost < ttl/2 || told < lost || told > lost+2*time.Millisecond || took <= told {
			t.Errorf("lost after %s, told after %s, taken over after %s", lost, told, took)
		}
		r.wantOwners("bbbb")
		a.line.off.Store(false)
		time.Sleep(ttl)
		r.put("abbb")
		r.advance()
		r.wantOwners("abbb")
		if h.AssignedContinuously() || a.s.Handle(keyIn(0, 4)).FencingToken() <= h.FencingToken() {
			t.Error("a handle is valid that another task's ownership lies between")
		}
	})
}

// A process that is stopped finds nothing to be its own from its first
// instruction on, and what it has found to be lost stays so.
func TestStoppedProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRealm(t, "a", "b")
		defer r.stop()
		a := r.member("a")
		r.put("aabb")
		r.advance()
		a.told.take()
		h, unasked := a.s.Handle(keyIn(0, 4)), a.s.Handle(keyIn(1, 4))
		a.skew.Store(int64(ttl)) // no goroutine runs between this and the questions
		if h.AssignedContinuously() || a.s.IsAffinitized(keyIn(0, 4)) || a.s.Slices() != nil || a.s.Handle(keyIn(0, 4)).Owned() {
			t.Error("owned past the deadline")
		}
		a.skew.Store(0)
		if h.AssignedContinuously() || a.s.Handle(keyIn(0, 4)).Owned() {
			t.Error("what was lost is back without a word")
		}
		a.skew.Store(int64(ttl))
		time.Sleep(ttl) // a keepalive is answered: the store has kept the lease
		r.wantOwners("aabb")
		if h.AssignedContinuously() || unasked.AssignedContinuously() {
			t.Error("a handle is valid that was not for a while")
		}
		// The new belief follows at once: the listener hears of the end of the one before
		// by itself only if it is quick.
		if got := strings.Join(a.told.take(), ", "); got != "+01 -01" && got != "+ -01, +01 -" {
			t.Errorf("the listener was told %q, want that 01 departed and arrived", got)
		}
	})
}

// What a slicelet gives back no other has to wait for.
func TestCloseGivesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRealm(t, "a", "b")
		defer r.stop()
		a := r.member("a")
		r.put("aabb")
		r.advance()
		h := a.s.Handle(keyIn(0, 4))
		if err := a.s.Close(); err != nil {
			t.Error(err)
		}
		if h.AssignedContinuously() || a.s.Handle(keyIn(0, 4)).Owned() || len(a.s.Slices()) > 0 {
			t.Error("owned after Close")
		}
		began := time.Now()
		r.put("bbbb")
		r.advance()
		if took := time.Since(began); took > time.Second/2 {
			t.Errorf("the change took %s", took)
		}
		r.wantOwners("bbbb")
		if err := a.s.Ready(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("Ready after Close: %v", err)
		}
	})
}

func TestCloseWithTheLeaseStoreDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRealm(t, "a", "b")
		defer r.stop()
		a := r.member("a")
		r.put("aabb")
		r.advance()
		a.line.off.Store(true)
		began := time.Now()
		if err := a.s.Close(); !errors.Is(err, lease.ErrUnavailable) || time.Since(began) > ttl*3/2 {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		a.line.off.Store(false)
		time.Sleep(ttl / 2)
		r.put("bbbb")
		began = time.Now()
		if r.advance(); time.Since(began) > ttl/2 {
			t.Errorf("what could not be released has held up the change for %s", time.Since(began))
		}
	})
}

func TestDrainInConsistentMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRealm(t, "a", "b")
		defer r.stop()
		a := r.member("a")
		r.put("aabb")
		r.advance()
		drain := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			return a.s.Drain(ctx)
		}
		var de *DrainError
		if err := drain(); !errors.As(err, &de) || de.Slices != 2 {
			t.Errorf("nobody moves the slices: %v", err)
		}
		g := r.put("bbbb")
		converged := func(g assignment.Generation) {
			r.server.Say(&slicerv1.Status{TakesReports: true, Mode: slicerv1.Mode_MODE_CONSISTENT, ConvergedGeneration: int64(g)})
		}
		converged(g)
		if err := drain(); !errors.As(err, &de) || de.Slices != 2 {
			t.Errorf("assigned to others, who do not own them yet: %v", err)
		}
		r.advance()
		if err := drain(); err != nil {
			t.Errorf("all is moved: %v", err)
		}
	})
}

// A drain with no task to move slices to ends with the leases held, until Close gives
// them back.
func TestDrainOfALoneTaskInConsistentMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRealm(t, "a")
		defer r.stop()
		a := r.member("a")
		r.put("aaaa")
		r.advance()
		if err := a.s.Drain(t.Context()); !errors.Is(err, ErrAlone) {
			t.Errorf("drain: %v", err)
		}
		time.Sleep(2 * ttl)
		r.wantOwners("aaaa")
		if err := a.s.Close(); err != nil {
			t.Error(err)
		}
		r.members = append(r.members, r.begin("b", nil, nil))
		synctest.Wait()
		r.put("bbbb")
		began := time.Now()
		if r.advance(); time.Since(began) > ttl/2 {
			t.Errorf("leases that were given back have held up the change for %s", time.Since(began))
		}
		time.Sleep(ttl)
		r.wantOwners("bbbb")
	})
}

// Slicer is dead: a restarted task owns nothing, but one that lives loses nothing.
func TestConsistentModeWithSlicerDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := filepath.Join(t.TempDir(), "cache")
		r := newRealm(t, "b")
		defer func() { r.store.Close() }()
		r.members = append(r.members, r.begin("a", nil, func(c *Config) { c.CacheFile = cache }))
		synctest.Wait()
		a, b := r.member("a"), r.member("b")
		r.put("aabb")
		r.advance()
		h := b.s.Handle(keyIn(3, 4))
		if err := errors.Join(a.s.Close(), a.reader.Close()); err != nil {
			t.Error(err)
		}
		r.server.Stop()
		a = r.begin("a", nil, func(c *Config) { c.CacheFile = cache })
		r.members[1] = a
		if err := a.s.Ready(t.Context()); err != nil {
			t.Errorf("Ready: %v", err)
		}
		time.Sleep(time.Minute)
		r.wantOwners("--bb")
		if !h.AssignedContinuously() {
			t.Error("a lease is lost without Slicer")
		}
		for _, m := range r.members {
			if err := errors.Join(m.s.Close(), m.reader.Close()); err != nil {
				t.Error(err)
			}
		}
	})
}

// A task that loses its lease and has it again before anything has moved owns its
// keys anew, so their tokens are not lower than before: a store that has seen those
// would refuse its writes.
func TestTokensDoNotFallWhenALeaseIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRealm(t, "a", "b")
		defer r.stop()
		b := r.member("b")
		r.put("aabb")
		r.advance()
		inForce := r.put("abbb")
		r.advance()
		// A change begins, and does not come to its end: a does not take the bridge.
		r.put("abba")
		var stuck atomic.Bool
		stuck.Store(true)
		r.member("a").line.gate = func(c lease.Claim) {
			for c.Bridge() && stuck.Load() {
				time.Sleep(time.Millisecond)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if _, err := lease.Advance(ctx, r.w, lease.Change{Job: "job", Token: r.token, Wanted: r.last.Generation(), Wait: time.Second}); err == nil {
			t.Error("the change has come to its end")
		}
		// b loses its leases. It has the bridge before the guard, and then the other way
		// round.
		key := keyIn(3, 4)
		var tokens []assignment.Generation
		for _, late := range []bool{true, false} {
			b.line.gate = func(c lease.Claim) {
				if late != c.Bridge() {
					time.Sleep(100 * time.Millisecond)
				}
			}
			b.line.off.Store(true)
			time.Sleep(2 * ttl)
			if b.s.IsAffinitized(key) {
				t.Error("owned without a lease")
			}
			b.line.off.Store(false)
			time.Sleep(ttl)
			tokens = append(tokens, b.s.Handle(key).FencingToken())
		}
		if tokens[0] != inForce || tokens[1] != inForce {
			t.Errorf("tokens %d under generation %d", tokens, inForce)
		}
		stuck.Store(false)
	})
}

// A slicelet whose first sight of the leases is an older generation in force than
// the newest it was sent fetches it by its number.
func TestFetchesWhatIsInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRealm(t, "a", "b")
		defer r.stop()
		a := r.member("a")
		a.line.off.Store(true)
		time.Sleep(2 * ttl)
		r.put("aabb")
		r.advance()
		r.put("abbb")
		if r.server.Fetches() != 0 {
			t.Errorf("%d fetches", r.server.Fetches())
		}
		a.line.off.Store(false)
		time.Sleep(ttl)
		r.wantOwners("aabb")
		if r.server.Fetches() == 0 {
			t.Error("nothing was fetched")
		}
		r.advance()
		r.wantOwners("abbb")
	})
}

// A slicelet that comes back during a change gets the bridge before the guard: the
// keys that are about to move are its own again for a moment, with a token that
// the next owner's exceeds.
func TestBridgeBeforeGuard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRealm(t, "a", "b")
		defer r.stop()
		a, b := r.member("a"), r.member("b")
		first := r.put("aabb")
		r.advance()
		a.line.off.Store(true)
		time.Sleep(2 * ttl)
		a.told.take()
		// The guard is not recalled before b has the bridge.
		a.line.gate = func(c lease.Claim) {
			if !c.Bridge() {
				time.Sleep(100 * time.Millisecond)
			}
		}
		seen := make(chan struct{}) // what a owns during the change
		b.line.gate = func(c lease.Claim) {
			if c.Bridge() {
				<-seen
			}
		}
		second := r.put("abbb")
		change := make(chan error, 1)
		go func() {
			_, err := lease.Advance(context.Background(), r.w, lease.Change{Job: "job", Token: r.token, Wanted: second, Wait: 10 * time.Second})
			change <- err
		}()
		synctest.Wait()
		a.line.off.Store(false)
		for len(a.s.Slices()) == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		r.wantOwners("a-bb")
		time.Sleep(200 * time.Millisecond)
		r.wantOwners("aabb")
		h := a.s.Handle(keyIn(1, 4))
		if h.FencingToken() != first {
			t.Errorf("under the guard of %d its token is %d", first, h.FencingToken())
		}
		close(seen)
		if err := <-change; err != nil {
			t.Error(err)
		}
		r.wantOwners("abbb")
		if got := b.s.Handle(keyIn(1, 4)).FencingToken(); got != second || h.AssignedContinuously() {
			t.Errorf("the next owner's token is %d; the handle before is valid: %t", got, h.AssignedContinuously())
		}
		if got, want := a.told.take(), []string{"+0 -", "+1 -", "+ -1"}; !slices.Equal(got, want) {
			t.Errorf("the listener was told %q, want %q", got, want)
		}
	})
}

func TestLeasesThatCannotBeHad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRealm(t, "a")
		defer r.stop()
		// Two slicelets of one job cannot share a reader.
		second := r.begin("b", nil, func(c *Config) { c.Leases = r.member("a").reader })
		r.put("aaaa")
		r.advance()
		if err := second.s.Ready(t.Context()); !errors.Is(err, lease.ErrJoined) {
			t.Errorf("a reader of two slicelets of one job: %v", err)
		}
		third := r.begin("c", nil, func(c *Config) { c.Leases = nil })
		if err := third.s.Ready(t.Context()); !errors.Is(err, ErrConsistent) {
			t.Errorf("without leases: %v", err)
		}
		fourth := r.begin("d", func(m *member) { m.line.off.Store(true) }, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := fourth.s.Ready(ctx); !errors.Is(err, lease.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), `"d"`) {
			t.Errorf("without a lease store: %v", err)
		}
		r.wantOwners("aaaa")
		for _, m := range []*member{second, third, fourth} {
			if err := errors.Join(m.s.Close(), m.reader.Close()); err != nil {
				t.Errorf("%s: %v", m.name, err)
			}
		}
	})
}

func TestRequestPathDoesNotAllocateInConsistentMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRealm(t, "a", "b")
		defer r.stop()
		r.put("aabb")
		r.advance()
		r.put("baaa") // metered by another assignment than that in force
		s, key := r.member("a").s, keyIn(1, 4)
		s.Handle(key)
		if n := testing.AllocsPerRun(1000, func() {
			h := s.Handle(key)
			if !h.AssignedContinuously() || !s.IsAffinitized(key) {
				t.Error("not owned")
			}
		}); n != 0 {
			t.Errorf("%v allocations", n)
		}
	})
}

// Requests are metered by the newest assignment, and those that are refused
// count as misrouted.
func TestMeteringInConsistentMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRealm(t, "a", "b")
		defer r.stop()
		a := r.member("a")
		r.put("aabb")
		r.advance()
		r.put("abab") // not in force: 1 goes, 2 comes
		time.Sleep(5 * time.Second)
		for q, n := range []int{1, 10, 100, 1000} {
			for range n {
				a.s.Handle(keyIn(q, 4))
			}
		}
		time.Sleep(3 * time.Second)
		_, n := a.s.recorder.newest()
		if n.requests != 1111 || n.misrouted != 1100 {
			t.Errorf("%d requests, %d misrouted", n.requests, n.misrouted)
		}
		sum := map[int]float64{}
		var total float64
		for _, m := range r.server.Heard() {
			l := m.GetReport().GetLoad()
			total += float64(l.GetTotalRate()) * l.GetWindowSeconds()
			at := uint64(0)
			for i, rate := range l.GetRate() {
				at += l.RangeSkip[i]
				sum[int(at>>(assignment.KeyBits-2))] += float64(rate) * l.WindowSeconds
				at += l.RangeWidth[i]
			}
		}
		if int(sum[0]+.5) != 1 || sum[1] != 0 || int(sum[2]+.5) != 100 || sum[3] != 0 || int(total+.5) != 1111 {
			t.Errorf("reported by quarter %v, in total %v", sum, total)
		}
	})
}
