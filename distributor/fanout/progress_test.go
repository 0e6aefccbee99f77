package fanout

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/slicer-project/slicer/assignment"
)

// A subscriber that applies or refuses what it is sent, in any order of events,
// is never sent back, never sent two at once, and ends with the newest.
func TestProgressConverges(t *testing.T) {
	sumOf := func(m Version) uint64 { return m.Store<<32 | uint64(m.Gen) | 1<<63 }
	rapid.Check(t, func(t *rapid.T) {
		var p progress
		var held Version
		var sum uint64
		if rapid.Bool().Draw(t, "holds something") {
			held = Version{rapid.Uint64Range(1, 2).Draw(t, "store"), assignment.Generation(rapid.Int64Range(1, 4).Draw(t, "gen"))}
			sum = sumOf(held)
			if rapid.Bool().Draw(t, "spoilt") {
				sum++
			}
		}
		p = progress{held: held, sum: sum}
		newest := Version{1, 1}
		home := rapid.Uint64Range(0, 2).Draw(t, "home")
		var flight *Version
		whole := false
		advance := func() {
			switch s := p.next(newest, sumOf(newest), home); s {
			case stepWhole, stepDelta:
				if flight != nil {
					t.Fatal("two at once")
				}
				if newest.Gen < held.Gen && (newest.Store == held.Store || newest.Store != home) {
					t.Fatalf("sent back from %v to %v", held, newest)
				}
				// The shelf has no delta on what is not what it should be.
				if whole = s == stepWhole || sum != sumOf(held); !whole && (held.Store != newest.Store || held == newest) {
					t.Fatalf("a delta on %v", held)
				}
				p.sent(newest, sumOf(newest), whole)
				m := newest
				flight = &m
			case stepBehind:
				if held.Gen <= newest.Gen {
					t.Fatalf("%v is said to be ahead of %v", held, newest)
				}
			}
		}
		accept := func() {
			if flight != nil {
				held, sum = *flight, sumOf(*flight)
				p.acked(flight.Gen)
				flight = nil
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"newer": func(*rapid.T) { newest.Gen++ },
			"other store": func(*rapid.T) {
				newest = Version{newest.Store%2 + 1, newest.Gen + assignment.Generation(rapid.Int64Range(-2, 1).Draw(t, "by"))}
				newest.Gen = max(newest.Gen, 1)
			},
			"home":   func(t *rapid.T) { home = rapid.Uint64Range(0, 2).Draw(t, "home") },
			"send":   func(*rapid.T) { advance() },
			"accept": func(*rapid.T) { accept() },
			"refuse": func(*rapid.T) {
				if flight != nil {
					p.declined()
					flight = nil
				}
			},
			"stray ack": func(t *rapid.T) {
				if flight == nil {
					p.acked(held.Gen)
				}
			},
		})
		newest.Gen = max(newest.Gen, held.Gen) + 1
		for range 2 {
			accept()
			advance()
		}
		accept()
		if held != newest || sum != sumOf(newest) || p.next(newest, sum, home) != stepNothing {
			t.Fatalf("ends with %v, the newest is %v", held, newest)
		}
	})
}

func TestProgressBelievesNewerAcks(t *testing.T) {
	p := progress{held: Version{1, 5}, sum: 5}
	p.sent(Version{1, 6}, 6, false)
	p.acked(8) // from another Distributor, in the meantime
	if s := p.next(Version{1, 7}, 7, 1); s != stepBehind {
		t.Errorf("step %v after an acknowledgement of something newer", s)
	}
	if s := p.next(Version{1, 9}, 9, 1); s != stepWhole {
		t.Errorf("step %v from an assignment whose checksum is not known", s)
	}
	p.acked(3)
	if p.held.Gen != 8 {
		t.Errorf("a late acknowledgement took it back to %d", p.held.Gen)
	}
}
