package suite

import (
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// servers are the checks of to which server a subscriber goes, and when.
func servers() []Check {
	return []Check{
		{Name: "backoff", Ref: refWatch, run: checkBackoff, timed: true,
			Text: "Between attempts at the only Distributor there are waits, of at least 100 ms, which grow with each failure and stay below 6 s."},
		{Name: "jitter", Ref: refWatch, run: checkJitter, timed: true,
			Text: "The waits of several subscribers differ."},
		{Name: "retry-after", Ref: refWatch, run: checkRetryAfter,
			Text: "A subscriber that is moved away by UNAVAILABLE with RetryAfter goes to another Distributor."},
		{Name: "retry-after-only", Ref: refSubscriber, run: checkRetryAfterOnly,
			Text: "If there is no other, it returns when the time has passed, and not before."},
		{Name: "silence", Ref: refWatch, run: checkSilence, timed: true,
			Text: "A server that is silent for three times repeat_ms is left for another one; one that is not, is not."},
		{Name: "unknown-job", Ref: refSubscriber, run: checkUnknownJob,
			Text: "After NOT_FOUND the subscriber tries again, since the job may be created."},
		{Name: "backup", Ref: refWatch, run: checkBackup,
			Text: "When all Distributors have failed a subscriber streams from a Backup Distributor, and sends it no reports."},
		{Name: "backup-return", Ref: refWatch, run: checkBackupReturn,
			Text: "It returns to a Distributor, and leaves the Backup Distributor, when there is one again."},
		{Name: "backup-behind", Ref: refAssignment, run: checkBackupBehind,
			Text: "An older generation from a Backup Distributor does not take the place of a newer one."},
		{Name: "cache-file", Ref: refSubscriber, run: checkCacheFile,
			Text: "With a cache file a restarted subscriber goes by its last assignment while no server can be reached, and ignores a file that is damaged. Optional."},
		{Name: "goodbye", Ref: refSubscriber, run: checkGoodbye,
			Text: "A subscriber that closes ends its stream."},
		{Name: "keepalive", Ref: refSubscriber, run: checkKeepalive, Slow: true, timed: true,
			Text: "A connection on which nothing comes any more is left for another Distributor within 30 s by keepalive pings, though the server has promised nothing; pings are at least 5 s apart."},
	}
}

// Bounds of the wait between attempts: half of 250 ms, and 5 s, with room for a busy machine.
const (
	leastWait = 100 * time.Millisecond
	mostWait  = 6 * time.Second
)

// waits are the times between n+1 attempts at a Distributor that refuses them all.
func (d *server) waits(n int) (all []time.Duration) {
	within := d.t.patience
	for i := range n {
		within += min(500*time.Millisecond<<i, mostWait)
	}
	if !d.wait(within, func() bool { return len(d.refused) > n }) {
		d.t.fault(fmt.Sprintf("%d attempts at %s within %s", n+1, d.name, within), fmt.Sprint(len(d.attempts())))
	}
	times := d.attempts()
	for i := range n {
		all = append(all, times[i+1].Sub(times[i]))
	}
	return all
}

var errEnds = status.Error(codes.Unavailable, "no part that could know answers")

func checkBackoff(t *T) {
	d := t.server("A")
	d.refuseAll(errEnds)
	t.start(startConfig{distributors: []*server{d}})
	all := d.waits(4)
	for i, w := range all {
		if w < leastWait || w > mostWait {
			t.fault(fmt.Sprintf("waits of %s to %s between attempts", leastWait, mostWait), fmt.Sprintf("%s after attempt %d", w.Round(time.Millisecond), i+1))
		}
	}
	if first, last := all[0], max(all[2], all[3]); last < first*3/2 {
		t.fault("waits that grow with each failure", fmt.Sprint(rounded(all)))
	}
}

func rounded(all []time.Duration) (out []time.Duration) {
	for _, d := range all {
		out = append(out, d.Round(time.Millisecond))
	}
	return out
}

func checkJitter(t *T) {
	const (
		subscribers = 6
		attempts    = 4
		// Where waits are drawn from half of the longest to all of it, four of six are next to
		// the shortest once in 300 cases, and once more when the check is run again in 100,000.
		// Some may be late, as the machine is busy.
		next, most = 16, 3
	)
	for i := range subscribers {
		d := t.server(fmt.Sprint("A", i+1))
		d.refuseAll(errEnds)
		t.start(startConfig{distributors: []*server{d}, clientID: fmt.Sprint("client-", i+1)})
	}
	waits := make([][]time.Duration, attempts)
	for _, d := range t.servers {
		for n, w := range d.waits(attempts) {
			waits[n] = append(waits[n], w)
		}
	}
	for n := 1; n < attempts; n++ { // the first of all wait while others start
		least, alike := slices.Min(waits[n]), 0
		for _, w := range waits[n] {
			if w < least+least/next {
				alike++
			}
		}
		if alike > most {
			t.fault(fmt.Sprintf("waits of %d subscribers that differ at random", subscribers), fmt.Sprintf("%d almost the same after attempt %d: %v", alike, n+1, rounded(waits[n])))
		}
	}
}

// movedAway ends a stream as a Distributor does that has too many subscribers.
func movedAway(after time.Duration) error {
	s, err := status.New(codes.Unavailable, "there are too many subscribers here").WithDetails(&slicerv1.RetryAfter{AfterMs: after.Milliseconds()})
	if err != nil {
		panic(trouble{err})
	}
	return s.Err()
}

func checkRetryAfter(t *T) {
	servers := []*server{t.server("A"), t.server("B")}
	t.start(startConfig{distributors: servers})
	w, at := t.acceptAny(servers...)
	w.status(greeting())
	a := storyOf(w).chain(1)[0]
	w.put(a)
	w.wantTaken(a, "a whole assignment")
	left := time.Now()
	w.finish(movedAway(20 * time.Second))
	w = servers[1-at].accept()
	w.status(greeting())
	if back := servers[at].next(300 * time.Millisecond); back != nil {
		t.fault("no stream to the Distributor that has moved it away for 20s", fmt.Sprintf("one after %s", back.at.Sub(left).Round(time.Millisecond)))
	}
}

func checkRetryAfterOnly(t *T) {
	const after = 1500 * time.Millisecond
	_, d, w, _ := t.give(1)
	left := time.Now()
	w.finish(movedAway(after))
	back := d.accept().at.Sub(left)
	if back < after {
		t.fault(fmt.Sprintf("no attempt within the %s of RetryAfter", after), fmt.Sprintf("one after %s", back.Round(time.Millisecond)))
	}
}

func checkSilence(t *T) {
	const repeat = 500 * time.Millisecond
	servers := []*server{t.server("A"), t.server("B")}
	s := t.start(startConfig{distributors: servers})
	w, at := t.acceptAny(servers...)
	m := greeting()
	m.RepeatMs = repeat.Milliseconds()
	w.status(m)
	a := storyOf(w).chain(1)[0]
	w.put(a)
	w.wantTaken(a, "a whole assignment")
	// As long as it is repeated the subscriber stays.
	for range 5 {
		if w.gone(repeat) {
			t.fault("a subscriber that stays while a Status comes each repeat_ms", "the end of the stream")
		}
		w.status(m)
	}
	spoke := time.Now()
	other := servers[1-at].accept()
	if early := other.at.Sub(spoke); early < 2*repeat {
		t.fault(fmt.Sprintf("a server that is silent for %s, with repeat_ms %d, left after three times that", repeat, repeat.Milliseconds()), fmt.Sprintf("left after %s", early.Round(time.Millisecond)))
	}
	other.status(greeting())
	s.wantView(a, "at the other Distributor")
	if !w.gone(t.patience) {
		t.fault("the end of the stream to the server that is silent", "it lasts")
	}
}

func checkUnknownJob(t *T) {
	d := t.server("A")
	d.refuseAll(status.Error(codes.NotFound, "there is no such job"))
	s := t.start(startConfig{distributors: []*server{d}})
	if all := d.waits(2); all[0] < leastWait || all[1] < leastWait {
		t.fault(fmt.Sprintf("waits of at least %s between attempts", leastWait), fmt.Sprint(rounded(all)))
	}
	s.wantView(nil, "while there is no such job")
	d.refuseAll(nil)
	w := d.accept()
	w.status(greeting())
	a := storyOf(w).chain(1)[0]
	w.put(a)
	w.wantTaken(a, "the first assignment of a job that has been created")
	s.comesToView(a, "when the job is there")
}

// fromBackup has a subscriber without a Distributor take an assignment from a Backup Distributor.
func (t *T) fromBackup() (s *session, d, b *server, w *watch, st *story) {
	d, b = t.server("A"), t.server("backup")
	d.lis.setDown(true)
	s = t.start(startConfig{distributors: []*server{d}, backups: []*server{b}})
	w = b.accept()
	m := greeting()
	m.TakesReports, m.ReportIntervalMs = false, 150
	w.status(m)
	return s, d, b, w, storyOf(w)
}

func checkBackup(t *T) {
	s, _, _, w, st := t.fromBackup()
	all := st.chain(2)
	w.put(all[0])
	w.wantTaken(all[0], "a whole assignment of a Backup Distributor")
	s.comesToView(all[0], "after a Backup Distributor has sent it")
	w.delta(all[0], all[1])
	w.wantTaken(all[1], "a delta of a Backup Distributor")
	s.comesToView(all[1], "after a Backup Distributor has sent it")
	// One may have been on its way when the status came.
	time.Sleep(100 * time.Millisecond)
	w.forget()
	if w.report(700*time.Millisecond, func(report) bool { return true }) != nil {
		t.fault("no Report to a Backup Distributor, whose takes_reports is false", "one")
	}
}

func checkBackupReturn(t *T) {
	s, d, _, w, st := t.fromBackup()
	all := st.chain(2)
	w.put(all[0])
	w.wantTaken(all[0], "a whole assignment of a Backup Distributor")
	d.lis.setDown(false)
	back := d.accept()
	back.status(greeting())
	back.put(all[1])
	back.wantTaken(all[1], "a whole assignment of a Distributor, which is there again")
	s.comesToView(all[1], "after the Distributor has sent it")
	if !w.gone(t.patience) {
		t.fault(fmt.Sprintf("the end of the stream to the Backup Distributor within %s, as a Distributor serves", t.patience), "it lasts")
	}
}

func checkBackupBehind(t *T) {
	d, b := t.server("A"), t.server("backup")
	s := t.start(startConfig{distributors: []*server{d}, backups: []*server{b}})
	w := d.accept()
	w.status(greeting())
	all := storyOf(w).chain(2)
	w.put(all[1])
	w.wantTaken(all[1], "a whole assignment")
	d.lis.setDown(true)
	w = b.next(t.patience + 15*time.Second)
	if w == nil {
		t.fault("a stream to the Backup Distributor while no Distributor can be reached", "none")
	}
	m := greeting()
	m.TakesReports = false
	w.status(m)
	w.put(all[0])
	if a := w.ack(t.patience); a == nil || a.GetGeneration() != int64(all[1].Generation()) {
		t.fault(fmt.Sprintf("an Ack of generation %d, which stays in hand, for an older one", all[1].Generation()), w.sawAck(a))
	}
	s.wantView(all[1], "after an older one came from a Backup Distributor")
}

func checkGoodbye(t *T) {
	s, _, w, _ := t.give(1)
	s.quit()
	if !w.gone(2 * time.Second) {
		t.fault("the end of the stream within 2s of close", "it lasts")
	}
}

func checkKeepalive(t *T) {
	servers := []*server{t.server("A"), t.server("B")}
	s := t.start(startConfig{distributors: servers})
	w, at := t.acceptAny(servers...)
	m := greeting()
	m.RepeatMs = 0
	w.status(m)
	a := storyOf(w).chain(1)[0]
	w.put(a)
	w.wantTaken(a, "a whole assignment")
	// Pings that come too often end the connection, as at a Distributor.
	if w.gone(22 * time.Second) {
		t.fault(fmt.Sprintf("a stream that lasts for 22s, with pings at least %s apart", leastPing), "its end")
	}
	servers[at].lis.freeze()
	other := servers[1-at].next(30*time.Second + t.patience)
	if other == nil {
		t.fault("a stream to the other Distributor within 30s of the last byte from the first", "none")
	}
	other.status(greeting())
	s.wantView(a, "at the other Distributor")
}
