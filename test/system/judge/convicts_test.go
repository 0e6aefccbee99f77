//go:build system

// These need nothing that is not there; they take a minute of two processors each time, for
// what changes with the judge alone.

package judge

import (
	"testing"
	"time"
)

// convicts runs storms until the judge finds what is wrong.
func convicts(t *testing.T, p plan, kinds []fault, guilty func(Verdict) bool) {
	t.Helper()
	b := newBed(t, newLoopback(t), p)
	b.flows(60 * time.Second)
	began := time.Now()
	judge := func() Verdict {
		v, err := Judge(b.read(), findTime)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	suspected := false
	for range 24 { // two minutes at the most: on a busy machine little happens in one
		b.storm(5*time.Second, time.Second, kinds)
		b.plan.seed++
		// What is under way is not written down yet: one look may be wrong, and by the
		// next one it has been.
		was := suspected
		if suspected = guilty(judge()); was && suspected {
			break
		}
	}
	b.end()
	v := judge()
	if !guilty(v) {
		t.Errorf("nothing was found in %.0f s: %s", time.Since(began).Seconds(), v)
	}
	t.Logf("after %.0f s: %v", time.Since(began).Seconds(), v.Err())
}

// Slicelets that do not look at their deadline go on believing when they are cut
// off and others take over.
func TestJudgeConvictsAMissingDeadline(t *testing.T) {
	t.Parallel()
	p := small(seed(t))
	p.noDeadline, p.recycle = true, 0
	convicts(t, p, []fault{{"cut", 1, cut(2*leaseTime, 4*leaseTime, toEtcd, toPlane)}},
		func(v Verdict) bool { return len(v.Overlaps) > 0 })
}

// A store that takes writes with old tokens loses updates, of owners that stood
// still between their check and the write.
func TestJudgeConvictsAStoreWithoutTokens(t *testing.T) {
	t.Parallel()
	p := small(seed(t))
	p.ignoreTokens, p.recycle, p.think = true, 0, 100*time.Millisecond
	convicts(t, p, []fault{{"stop", 1, stop(owners, 2*leaseTime, 3*leaseTime)}},
		func(v Verdict) bool { return len(v.Illegal) > 0 && len(v.Overlaps) == 0 })
}
