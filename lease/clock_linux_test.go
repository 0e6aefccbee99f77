package lease

import (
	"testing"
	"time"

	"github.com/slicer-project/slicer/test/kit/boottime"
)

// TestBoottime holds the clock of deadlines to what the kernel calls CLOCK_BOOTTIME,
// with an anchor and without.
// On a machine that was never suspended CLOCK_MONOTONIC reads the same: the system
// test runs this one where the two differ.
func TestBoottime(t *testing.T) {
	anchors := 0
	for until := boottime.Now() + 20*anchorAge; boottime.Now() < until; {
		a := newestAnchor.Load()
		before, now, after := boottime.Now(), Boottime(), boottime.Now()
		if now < before-2*near || now > after+2*near {
			t.Fatalf("Boottime is %s, CLOCK_BOOTTIME %s before and %s after", now, before, after)
		}
		if newestAnchor.Load() != a {
			anchors++
		}
	}
	t.Logf("%d anchors", anchors)
}

// TestAnchor takes an anchor into what may happen to the clocks. boot is by how much
// CLOCK_BOOTTIME is ahead of the monotonic one, wall the wall clock.
func TestAnchor(t *testing.T) {
	const (
		s  = time.Second
		us = time.Microsecond
		at = 1000 * s // the anchor's
	)
	for _, c := range []struct {
		what  string
		now   reading // besides at and 5 s
		boot  time.Duration
		known bool
	}{
		{"at once", reading{0, 0}, 0, true},
		{"within a millisecond", reading{999 * us, 0}, 0, true},
		{"by a goroutine that read the clocks just before the anchor was made", reading{-us, 0}, 0, true},
		{"by one that read them long before", reading{-1001 * us, 0}, 0, false},
		{"later", reading{1001 * us, 0}, 0, false},
		{"after a suspend", reading{500 * us, 3 * s}, 3 * s, false},
		{"after a suspend of 20 us", reading{500 * us, 20 * us}, 20 * us, false},
		{"after a suspend that the wall clock is set back for, later", reading{5000 * us, 0}, 3 * s, false},
		{"after a suspend, and a second that the wall clock is set back", reading{500 * us, 2 * s}, 3 * s, false},
		{"the wall clock was set back", reading{500 * us, -3600 * s}, 0, false},
		{"the wall clock was set forward", reading{500 * us, 3600 * s}, 0, false},
		{"a leap second", reading{500 * us, -s}, 0, false},
		{"stopped for 5 us between the two clocks", reading{500 * us, -5 * us}, 0, true},
		{"stopped for 5 ms between the two clocks", reading{5500 * us, -5000 * us}, 0, false},
		// The anchor is right about the moment when the wall clock was read.
		{"suspended, and stopped for as long between the two clocks", reading{500 * us, 8 * us}, 8 * us, true},
	} {
		first := reading{at, 5 * s}
		a, ok := newAnchor(first, at+7*s, first)
		if !ok {
			t.Fatal("no anchor where no time has passed")
		}
		now := reading{first.mono + c.now.mono, first.wall + c.now.wall}
		got, known := a.boottime(now)
		want := now.mono + 7*s + c.boot
		if known != c.known || known && apart(got, want) > near {
			t.Errorf("%s: %s, %t; want %s, %t", c.what, got, known, want, c.known)
		}
	}
}

// TestNewAnchor: what was read about CLOCK_BOOTTIME at some time between two readings is
// an anchor only if these are as good as one.
func TestNewAnchor(t *testing.T) {
	const us = time.Microsecond
	before := reading{time.Hour, time.Minute}
	for _, c := range []struct {
		what       string
		mono, wall time.Duration // after, more than before
		want       bool
	}{
		{"as usual", us, 0, true},
		{"stopped for 11 us", 11 * us, 0, false},
		{"stopped for a second", time.Second, 0, false},
		{"suspended", us, time.Second, false},
		{"the wall clock was set back", us, -time.Second, false},
	} {
		after := reading{before.mono + c.mono, before.wall + c.wall}
		a, ok := newAnchor(before, 2*time.Hour, after)
		if ok != c.want {
			t.Errorf("%s: %t, want %t", c.what, ok, c.want)
		}
		if boot, known := a.boottime(after); ok && (!known || boot != 2*time.Hour) {
			t.Errorf("%s: %s, %t; want what was read", c.what, boot, known)
		}
	}
}

// TestChecked: the monotonic clock alone is enough near the moment when the anchor was made
// or found to hold, and no reading counts for that whose clocks were read at two times.
func TestChecked(t *testing.T) {
	const us = time.Microsecond
	made := reading{time.Hour, time.Minute}
	soon := func(c *checked, what string, mono time.Duration, want bool) {
		t.Helper()
		if boot, known := c.soon(made.mono + mono); known != want || known && boot != made.mono+mono+time.Second {
			t.Errorf("%s: %s after the anchor was made: %s, %t; want %t", what, mono, boot, known, want)
		}
	}
	for _, c := range []struct {
		what                     string
		before, mono, wall, last time.Duration // after the anchor was made; last: when it is known to hold
	}{
		{"as usual", 500 * us, 501 * us, 0, 501 * us},
		{"stopped before", 400 * us, 500 * us, 0, 0},
		{"suspended for 300 us before, and stopped for as long between the two clocks", 400 * us, 701 * us, us, 0},
		{"suspended", 500 * us, 501 * us, time.Second, 0},
		{"later", 1500 * us, 1501 * us, 0, 0},
	} {
		a, _ := newAnchor(made, made.mono+time.Second, made)
		k := newChecked(a)
		soon(k, "at first", 0, true)
		soon(k, "at first", near, true)
		soon(k, "at first", -near, true)
		soon(k, "at first", near+1, false)
		soon(k, "at first", -near-1, false)
		k.check(made.mono+c.before, reading{made.mono + c.mono, made.wall + c.wall})
		soon(k, c.what, c.last+near, true)
		soon(k, c.what, c.last+near+1, false)
		soon(k, c.what, c.last-near-1, false)
		soon(k, c.what, c.mono, c.mono == c.last)
	}
}
