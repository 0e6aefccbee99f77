package protocol

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/subscriber/subscribertest"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

func movedAwayFor(t *testing.T, after time.Duration) error {
	t.Helper()
	s, err := status.New(codes.Unavailable, "too many").WithDetails(&slicerv1.RetryAfter{AfterMs: after.Milliseconds()})
	if err != nil {
		t.Fatal(err)
	}
	return s.Err()
}

// newClerk is a clerk of two Distributors and a Backup Distributor.
func newClerk(t *testing.T, held *assignment.Assignment, now time.Time) *Core {
	t.Helper()
	d := New(Config{Job: "web", Role: Clerk, ClientID: "c1", Distributors: []string{"d1:1", "d2:1"}, Backups: []string{"b1:1"}}, held, assignment.Affinity, -1)
	d.Start(now)
	return d
}

// dialed is the link that is to be made now, and its address.
func dialed(d *Core) (l Link, addr string) {
	for _, a := range d.Actions() {
		if a.Do == Dial {
			l, addr = a.Link, a.Addr
		}
	}
	return l, addr
}

// A subscriber that is moved away tries the next server at once. When all of them move it
// away it waits for as long as they ask, and up to half as long again.
func TestComeBackLater(t *testing.T) {
	const after = 4 * time.Second
	held := subscribertest.History(t, 1, 1)[0]
	now := time.UnixMilli(1_700_000_000_000)
	waits := map[time.Duration]bool{}
	d := newClerk(t, held, now)
	d.Tick(now)
	for round := range 5 {
		for i := range 2 {
			l, addr := dialed(d)
			if l == 0 || addr == "b1:1" {
				t.Fatalf("round %d: connects to %q", round, addr)
			}
			d.Linked(now, l)
			d.Ended(now, l, movedAwayFor(t, after))
			wait := d.Wake().Sub(now)
			switch {
			case i == 0 && wait >= nextWithin:
				t.Fatalf("round %d: the next server is tried after %s", round, wait)
			case i == 1 && (wait < after || wait > after+after/2):
				t.Fatalf("round %d: back after %s", round, wait)
			case i == 1:
				waits[wait] = true
			}
			now = d.Wake()
			d.Tick(now)
		}
	}
	if len(waits) < 4 {
		t.Errorf("always back after %v", waits)
	}
	if st := d.State(); st.Disconnected || !errors.Is(st.Err, ErrUnavailable) {
		t.Errorf("state %+v", st)
	}
}

// A subscriber that holds nothing does not wait: a Backup Distributor will do.
func TestComeBackWithNothingInHand(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	d := newClerk(t, nil, now)
	d.Tick(now)
	for range 2 {
		l, _ := dialed(d)
		d.Linked(now, l)
		d.Ended(now, l, movedAwayFor(t, time.Second))
		if d.State().Disconnected {
			break
		}
		now = d.Wake()
		d.Tick(now)
	}
	if _, addr := dialed(d); addr != "b1:1" || !d.State().Disconnected {
		t.Errorf("connects to %q", addr)
	}
}

// What a server asks is bounded, and connections that do not come about are given
// more and more time.
func TestComeBackIsBounded(t *testing.T) {
	for _, ms := range []int64{-5, 0, 1 << 62} {
		s, _ := status.New(codes.Unavailable, "x").WithDetails(&slicerv1.RetryAfter{AfterMs: ms})
		var back *movedAwayError
		if err := Explain(s.Err()); !errors.As(err, &back) || back.after <= 0 || back.after > maxRetryAfter {
			t.Errorf("%d ms: %v", ms, err)
		}
	}
	now := time.UnixMilli(1_700_000_000_000)
	d := newClerk(t, subscribertest.History(t, 1, 1)[0], now)
	d.Tick(now)
	var last time.Duration
	for range 20 {
		if l, addr := dialed(d); l == 0 || addr == "b1:1" {
			now = d.Wake()
			d.Tick(now)
			continue
		}
		at := d.dist.until
		last = max(last, at.Sub(now))
		now = at
		d.Tick(now)
		now = d.Wake()
		d.Tick(now)
	}
	if last != 4*dialTimeout {
		t.Errorf("the longest that a connection is waited for is %s", last)
	}
}

// A server that wants TLS ends a connection without it, which gRPC reports as an EOF. What gRPC
// says of the other mistakes does not say what is wrong either.
func TestExplainNamesWhatAnswers(t *testing.T) {
	for desc, want := range map[string]string{
		`error reading server preface: EOF`: "(does it want TLS?)",
		`transport: authentication handshake failed: tls: first record does not look like a TLS handshake`:                                                         "(it does not speak TLS)",
		`error reading server preface: http2: failed reading the frame payload: http2: frame too large, note that the frame header looked like an HTTP/1.1 header`: "(it speaks HTTP/1.1, as the port of --http does)",
	} {
		err := Explain(status.Error(codes.Unavailable, fmt.Sprintf("connection error: desc = %q", desc)))
		if !errors.Is(err, ErrUnavailable) || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
