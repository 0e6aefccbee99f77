package protocol

import (
	"errors"
	"testing"
	"time"
)

func TestPace(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for _, c := range []struct {
		name                 string
		pace                 pace
		stale, missing, idle bool
		do                   Todo
		wait                 time.Duration
	}{
		{name: "never read", stale: true, idle: true, do: ToRead},
		{name: "nothing new", pace: pace{last: now}, do: ToWait, wait: -1},
		{name: "a change that is needed", pace: pace{last: now}, stale: true, do: ToRead},
		{name: "a change that is not needed", pace: pace{last: now.Add(-3 * time.Second)}, stale: true, idle: true, do: ToWait, wait: 7 * time.Second},
		{name: "a change that was not needed for long", pace: pace{last: now.Add(-warmEvery)}, stale: true, idle: true, do: ToRead},
		{name: "missing, and asked for", pace: pace{last: now}, missing: true, do: ToWait, wait: idleFor},
		{name: "missing for long", pace: pace{last: now.Add(-idleFor)}, missing: true, idle: true, do: ToDrop, wait: -1},
		{name: "after a failure", pace: pace{last: now, until: now.Add(time.Second)}, stale: true, do: ToPause, wait: time.Second},
	} {
		if do, wait := c.pace.next(now, c.stale, c.missing, c.idle); do != c.do || wait != c.wait {
			t.Errorf("%s: %d for %s, want %d for %s", c.name, do, wait, c.do, c.wait)
		}
	}
	var p pace
	for i, least := range []time.Duration{50, 100, 200, 400, 800, 1000, 1000} {
		p.read(now, errors.New("no answer"), false, .999)
		if got := p.until.Sub(now); got < least*time.Millisecond || got > 2*least*time.Millisecond {
			t.Errorf("after failure %d a wait of %s, want %d ms to twice that", i+1, got, least)
		}
	}
	p.read(now, nil, false, 0)
	p.read(now, errors.New("no answer"), true, 0)
	if got := p.until.Sub(now); got != warmEvery || p.failures != 1 {
		t.Errorf("when it is not needed, a wait of %s after %d failures", got, p.failures)
	}
}
