package xds

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/anypb"
)

// desk is a session and what its client may find.
type desk struct {
	t       *testing.T
	now     time.Time
	s       session
	have    map[string]*resource // by type's number and name
	unknown map[string]bool      // pending
	kept    bool
	last    [numKinds]*answer
}

func newDesk(t *testing.T) *desk {
	return &desk{t: t, now: time.UnixMilli(baseGen), have: make(map[string]*resource), unknown: make(map[string]bool)}
}

func (d *desk) put(k kind, name, content string) {
	d.have[fmt.Sprint(k, name)] = &resource{job: "web", body: &anypb.Any{Value: []byte(content)}, gen: baseGen}
}

func (d *desk) find(k kind, name string) (*resource, verdict) {
	switch {
	case d.kept:
		return nil, isKept
	case d.unknown[name]:
		return nil, isPending
	}
	return d.have[fmt.Sprint(k, name)], isKnown
}

// ask subscribes, with the nonce of the last answer.
func (d *desk) ask(k kind, names ...string) *reply {
	r := request{kind: k, names: names}
	if d.last[k] != nil {
		r.nonce = d.last[k].nonce
	}
	return d.s.take(d.now, r)
}

func (d *desk) refuse(k kind, names ...string) *reply {
	return d.s.take(d.now, request{kind: k, names: names, nonce: d.last[k].nonce, refused: "no"})
}

// sends are the answers that come until nothing is due, within a time.
func (d *desk) sends(within time.Duration) string {
	var out []string
	for end := d.now.Add(within); ; {
		a, at := d.s.next(d.now, d.find)
		if a != nil {
			d.last[a.kind] = a
			var parts []string
			for _, r := range a.resources {
				parts = append(parts, string(r.body.Value))
			}
			out = append(out, fmt.Sprintf("%c[%s]", "lrce"[a.kind], strings.Join(parts, " ")))
			continue
		}
		if at.IsZero() || at.After(end) {
			d.now = end
			return strings.Join(out, " ")
		}
		if !at.After(d.now) {
			d.t.Fatalf("next is due at %s, which is not after now", at)
		}
		d.now = at
	}
}

func (d *desk) want(within time.Duration, want string) {
	d.t.Helper()
	if got := d.sends(within); got != want {
		d.t.Errorf("sent %q, want %q", got, want)
	}
}

func TestSessionAnswersOnceAndThenChanges(t *testing.T) {
	d := newDesk(t)
	d.put(listeners, "web", "L")
	d.put(routes, "web", "R1")
	d.ask(listeners, "web")
	d.want(replyAfter-1, "")
	d.want(replyAfter, "l[L]")
	if r := d.ask(listeners, "web"); r == nil || r.refused != "" || len(r.sent) != 1 {
		t.Errorf("the acknowledgement says %+v", r)
	}
	d.ask(routes, "web")
	d.want(time.Minute, "r[R1]")
	// Nothing is sent before the answer, and then the newest.
	for _, r := range []string{"R2", "R3", "R4"} {
		d.put(routes, "web", r)
		d.want(time.Second, "")
	}
	d.ask(routes, "web")
	d.want(0, "r[R4]")
	d.ask(routes, "web")
	// Changes come once a second at most.
	d.put(routes, "web", "R5")
	d.want(changeGap-1, "")
	d.want(1, "r[R5]")
	// What is the same is not sent, however it was made.
	d.ask(routes, "web")
	d.put(routes, "web", "R5")
	d.want(time.Minute, "")
}

func TestSessionRefusals(t *testing.T) {
	d := newDesk(t)
	d.put(routes, "web", "R1")
	d.ask(routes, "web")
	d.want(time.Second, "r[R1]")
	if r := d.refuse(routes, "web"); r == nil || r.refused != "no" || !d.s.refusing() {
		t.Errorf("the refusal says %+v", r)
	}
	// It is not sent again, whatever else the client says.
	for range 100 {
		d.refuse(routes, "web")
		d.want(time.Second, "")
	}
	// The next is.
	d.put(routes, "web", "R2")
	d.want(time.Minute, "r[R2]")
	d.ask(routes, "web")
	if d.s.refusing() {
		t.Error("it is refusing after it has accepted")
	}
	// An answer is refused once, and a stale nonce says nothing.
	if r := d.s.take(d.now, request{kind: routes, names: []string{"web"}, nonce: "1", refused: "late"}); r != nil {
		t.Errorf("a stale refusal counts: %+v", r)
	}
}

func TestSessionSubscriptionsGather(t *testing.T) {
	d := newDesk(t)
	for _, n := range "abcdef" {
		d.put(clusters, string(n), string(n))
	}
	d.ask(clusters, "a")
	d.want(replyAfter/2, "")
	d.ask(clusters, "a", "b", "x")
	d.want(replyAfter/2, "c[a b]")
	// What is asked for while an answer is on its way is answered after it.
	d.s.take(d.now, request{kind: clusters, names: []string{"a", "b", "c", "x"}, nonce: ""})
	d.want(time.Second, "")
	d.ask(clusters, "a", "b", "c", "x")
	d.want(time.Second, "c[a b c]")
	d.ask(clusters, "a", "c", "x") // asks for less
	d.want(time.Minute, "")
	d.put(clusters, "x", "x") // comes to be
	d.want(time.Minute, "c[a c x]")
	d.ask(clusters, "a", "c", "x")
	d.have = map[string]*resource{}
	d.want(time.Minute, "c[]")
	d.ask(clusters, "a", "c", "x")
	// Of routes and endpoints only what has changed is sent.
	d.put(endpoints, "a", "a")
	d.put(endpoints, "b", "b")
	d.ask(endpoints, "a", "b", "nothing")
	d.want(time.Minute, "e[a b]")
	d.ask(endpoints, "a", "b", "nothing")
	d.put(endpoints, "b", "B")
	d.want(time.Minute, "e[B]")
}

func TestSessionWaitsForWhatIsNotKnown(t *testing.T) {
	d := newDesk(t)
	d.put(listeners, "web", "L")
	d.unknown["other"] = true
	d.ask(listeners, "other", "web")
	d.want(time.Minute, "")
	d.unknown["other"] = false
	d.want(time.Second, "l[L]")
	d.ask(listeners, "other", "web")
	// What becomes unknown, or is kept, stays as it is.
	d.unknown["web"] = true
	d.want(time.Minute, "")
	d.unknown["web"], d.kept = false, true
	d.want(time.Minute, "")
	d.ask(listeners, "more", "other", "web")
	d.want(time.Minute, "l[L]")
}

func TestSessionBoundsAnswers(t *testing.T) {
	d := newDesk(t)
	for i := range 2 {
		d.put(clusters, fmt.Sprint("a", i), fmt.Sprint("a", i))
	}
	n := 0
	for i := range 3000 { // half a minute of a client that asks, leaves, and asks again
		d.ask(clusters, fmt.Sprint("a", i%2))
		n += len(strings.Fields(d.sends(10 * time.Millisecond)))
	}
	if most := replyBurst + int(30*time.Second/replyEvery) + 1; n > most || n < most/2 {
		t.Errorf("%d answers in 30 s, at most %d are allowed", n, most)
	}
}

func TestSessionIsLate(t *testing.T) {
	d := newDesk(t)
	d.put(listeners, "web", "L")
	d.ask(listeners, "web")
	d.want(replyAfter, "l[L]")
	if d.now = d.now.Add(answerWithin - 1); d.s.late(d.now) {
		t.Error("late too soon")
	}
	if d.now = d.now.Add(1); !d.s.late(d.now) {
		t.Error("never late")
	}
}

func TestSessionSendsWhatRoutesLeadToFirst(t *testing.T) {
	d := newDesk(t)
	for k := range numKinds {
		d.put(k, "web", string("LRCE"[k]))
		d.ask(k, "web")
	}
	d.want(time.Second, "c[C] e[E] l[L] r[R]")
	if got := d.s.jobs(); !slices.Equal(got, []string{"web"}) {
		t.Errorf("jobs are %v", got)
	}
}
