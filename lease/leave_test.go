package lease_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/lease"
)

// readers checks how many hold the guard.
func (v *world) readers(want int) {
	v.t.Helper()
	synctest.Wait()
	if st, err := v.w.State(v.t.Context(), "job"); err != nil || st.GuardReaders != want {
		v.t.Errorf("the guard has %d readers, %v; want %d", st.GuardReaders, err, want)
	}
}

// soon carries a change through, and fails if it is held up.
func (v *world) soon(g assignment.Generation) {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(v.t.Context(), ttl/2)
	defer cancel()
	if _, err := lease.Advance(ctx, v.w, lease.Change{Job: "job", Token: v.token, Wanted: g, Wait: time.Second}); err != nil {
		v.t.Errorf("the change to %d is held up: %v", g, err)
	}
}

func TestWhatCloseCannotReleaseIsReleasedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newWorld(t)
		v.advance(1)
		synctest.Wait()
		v.cut.off.Store(true)
		if err := v.job.Close(); err == nil {
			t.Error("closed without the store, and no error")
		}
		v.wantTold("guard 1", "nothing")
		v.readers(1)
		v.cut.off.Store(false)
		time.Sleep(ttl / 2)
		v.readers(0)
		j, err := v.join()
		if err != nil {
			t.Fatal(err)
		}
		v.soon(2)
		synctest.Wait()
		if got := belief(j.Belief()); got != "guard 2" {
			t.Errorf("the next one believes in %s", got)
		}
		v.close()
	})
}

// A recall comes while the store answers keepalives and nothing else.
func TestRecallOfWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newWorld(t)
		v.advance(1)
		synctest.Wait()
		v.cut.slow.Store(true)
		if err := v.job.Close(); err == nil {
			t.Error("no release is answered, and no error")
		}
		time.AfterFunc(3*ttl, func() { v.cut.slow.Store(false) })
		start := time.Now()
		v.advance(2)
		if took := time.Since(start); took < 3*ttl || took > 4*ttl {
			t.Errorf("the change took %s; releases were carried out after %s", took, 3*ttl)
		}
		v.close()
	})
}

// An acquire is carried out when the job is left and all is released.
func TestAcquireThatComesAfterTheRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newWorld(t)
		v.cut.slow.Store(true)
		v.advance(1)
		synctest.Wait()
		v.cut.slow.Store(false)
		if err := v.job.Close(); err != nil {
			t.Error(err)
		}
		v.readers(0)
		time.Sleep(time.Minute)
		v.cut.arrive(t.Context())
		v.readers(1)
		v.soon(2)
		v.readers(0)
		v.cut.arrive(t.Context())
		v.soon(3)
		v.close()
	})
}

// A release is carried out when the job is joined again: it must not take what
// that one believes in.
func TestReleaseThatComesAfterTheNextAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newWorld(t)
		v.advance(1)
		synctest.Wait()
		v.cut.slow.Store(true)
		if err := v.job.Close(); err == nil {
			t.Error("no release is answered, and no error")
		}
		v.cut.slow.Store(false)
		j, err := v.join()
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(ttl)
		v.cut.arrive(t.Context())
		v.readers(0)
		if got := belief(j.Belief()); got != "nothing" {
			t.Errorf("with a release that was late, it believes in %s", got)
		}
		v.soon(2)
		synctest.Wait()
		v.cut.arrive(t.Context())
		v.readers(1)
		if got := belief(j.Belief()); got != "guard 2" {
			t.Errorf("it believes in %s", got)
		}
		v.close()
	})
}

// What was left is done with when its session is over.
func TestWhatIsLeftEndsWithTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newWorld(t)
		v.advance(1)
		synctest.Wait()
		v.cut.off.Store(true)
		if err := v.job.Close(); err == nil {
			t.Error("closed without the store, and no error")
		}
		j, err := v.join()
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * ttl)
		v.cut.off.Store(false)
		time.Sleep(ttl)
		if got := belief(j.Belief()); got != "guard 1" {
			t.Errorf("in another session it believes in %s", got)
		}
		v.close()
	})
}

func TestCloseOfAReaderEndsWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newWorld(t)
		v.advance(1)
		synctest.Wait()
		v.cut.slow.Store(true)
		if err := v.job.Close(); err == nil {
			t.Error("no release is answered, and no error")
		}
		if err := v.reader.Close(); err != nil {
			t.Error(err)
		}
		v.readers(0)
		v.store.Close()
	})
}

func TestCoreLeaves(t *testing.T) {
	guard := lease.GuardClaim(1)
	d := newDrive(t)
	d.believing()
	d.seen(guard1, bridge12, "fetch 2")
	d.want(lease.Event{Kind: lease.InHand, Generation: 2}, "acquire bridge 1-2")
	d.want(lease.Event{Kind: lease.Leave}, "believe nothing", "release guard 1") // the bridge is asked for
	d.want(lease.Event{Kind: lease.Released, Session: 1, Claim: guard})
	d.acquired(bridge12.Claim(), "release bridge 1-2")
	d.want(lease.Event{Kind: lease.Unknown, Session: 1, Claim: bridge12.Claim(), Release: true, Retry: time.Second})
	if d.core.Left() || d.core.Resting() {
		t.Error("a release of unknown outcome, and it is done")
	}
	d.now = time.Second
	d.want(lease.Event{Kind: lease.Tick}, "release bridge 1-2")
	d.want(lease.Event{Kind: lease.Released, Session: 1, Claim: bridge12.Claim()})
	if d.core.Left() || !d.core.Resting() {
		t.Error("the first release may yet be carried out, and take what is acquired anew")
	}
	d.seen(guard1, retire12, "release bridge 1-2")
	d.want(lease.Event{Kind: lease.Released, Session: 1, Claim: bridge12.Claim()})
	if !d.core.Left() {
		t.Error("all is released, and it is not done")
	}
}

func TestCoreReleasesAgainWhatMayComeLate(t *testing.T) {
	guard := lease.GuardClaim(1)
	released := lease.Event{Kind: lease.Released, Session: 1, Claim: guard}
	d := newDrive(t)
	d.seen(guard1, none, "fetch 1")
	d.want(lease.Event{Kind: lease.InHand, Generation: 1}, "acquire guard 1")
	d.want(lease.Event{Kind: lease.Unknown, Session: 1, Claim: guard, Retry: 0}, "acquire guard 1")
	d.acquired(guard, "believe guard 1") // the second; the first may come yet
	d.want(lease.Event{Kind: lease.Leave}, "believe nothing", "release guard 1")
	// The recall is seen after the release was sent: that may have come before the
	// acquire, and both before the recall.
	d.seen(recall1, bridge12)
	d.want(released, "release guard 1")
	d.want(released)
	if !d.core.Left() {
		t.Error("the acquire cannot be carried out any more, and it is not done")
	}
}

// A job that is joined and left again while what was left before is on its way does
// not stand in the way of the next.
func TestLeftTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newWorld(t)
		v.advance(1)
		synctest.Wait()
		v.cut.off.Store(true)
		if err := v.job.Close(); err == nil {
			t.Error("closed without the store, and no error")
		}
		second, err := v.join()
		if err != nil {
			t.Fatal(err)
		}
		if err := second.Close(); err != nil {
			t.Errorf("nothing was held: %v", err)
		}
		third, err := v.join()
		if err != nil {
			t.Fatal(err)
		}
		v.cut.off.Store(false)
		time.Sleep(ttl / 2)
		v.readers(0)
		if got := belief(third.Belief()); got != "nothing" {
			t.Errorf("with a release that may come late, it believes in %s", got)
		}
		v.soon(2)
		synctest.Wait()
		if got := belief(third.Belief()); got != "guard 2" {
			t.Errorf("with the next assignment it believes in %s", got)
		}
		v.close()
	})
}
