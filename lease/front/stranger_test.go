package front_test

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store/etcdstore/etcdtest"
	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/lease/front"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

func wantCode(t *testing.T, what string, err error, want codes.Code) {
	t.Helper()
	if status.Code(err) != want {
		t.Errorf("%s: %v, want %s", what, err, want)
	}
}

// calls are those of a session but for its renewal, with whatever name.
func calls(ctx context.Context, c slicerv1.LeaseServiceClient, name []byte) map[string]error {
	claim := &slicerv1.Claim{To: 1}
	out := map[string]error{}
	_, out["JoinJob"] = c.JoinJob(ctx, &slicerv1.JoinJobRequest{Session: name, Job: "job"})
	_, out["AcquireClaim"] = c.AcquireClaim(ctx, &slicerv1.AcquireClaimRequest{Session: name, Job: "job", Claim: claim})
	_, out["ReleaseClaim"] = c.ReleaseClaim(ctx, &slicerv1.ReleaseClaimRequest{Session: name, Job: "job", Claim: claim})
	_, out["CloseSession"] = c.CloseSession(ctx, &slicerv1.CloseSessionRequest{Session: name})
	stream, err := c.WatchRecords(ctx, &slicerv1.WatchRecordsRequest{Session: name, Job: "job"})
	if err == nil {
		_, err = stream.Recv()
	}
	out["WatchRecords"] = err
	return out
}

func open(t *testing.T, c slicerv1.LeaseServiceClient, jobs ...string) *slicerv1.OpenSessionResponse {
	t.Helper()
	var resp *slicerv1.OpenSessionResponse
	err := inTime(func() (err error) {
		resp, err = c.OpenSession(t.Context(), &slicerv1.OpenSessionRequest{TtlMs: lease.MaxTTL.Milliseconds(), Jobs: jobs})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// Names that are not a session's lead nowhere: not to a session, and not to more than so
// many reads of etcd.
func TestGuessedNames(t *testing.T) {
	t.Parallel()
	b := newBed(t, etcdtest.Start(t), 1)
	c := slicerv1.NewLeaseServiceClient(dial(t, b.fronts[0].addr))
	own := open(t, c, "job")
	if len(own.GetSession()) != 16 {
		t.Fatalf("a session's name has %d bytes", len(own.GetSession()))
	}
	for _, name := range [][]byte{nil, {1}, own.GetSession()[:15], append(own.GetSession(), 0)} {
		_, err := c.RenewSession(t.Context(), &slicerv1.RenewSessionRequest{Session: name, Revision: 1})
		wantCode(t, "RenewSession", err, codes.NotFound)
		for call, err := range calls(t.Context(), c, name) {
			wantCode(t, call, err, codes.NotFound)
		}
	}
	guess := make([]byte, 16)
	looked, began := 0, time.Now()
	for range 3000 {
		rand.Read(guess)
		_, err := c.RenewSession(t.Context(), &slicerv1.RenewSessionRequest{Session: guess, Revision: 1})
		if status.Code(err) != codes.ResourceExhausted {
			looked++
			wantCode(t, "RenewSession of a guessed session", err, codes.NotFound)
		}
	}
	// On a machine that takes longer than UnknownEvery for each, all may be.
	if most := front.UnknownBurst + int(time.Since(began)/front.UnknownEvery) + 1; looked > most {
		t.Errorf("of 3,000 guesses %d were looked up, want %d at most", looked, most)
	}
	for call, err := range calls(t.Context(), c, guess) {
		wantCode(t, call+" of a guessed session", err, codes.Aborted)
	}
	if _, err := c.RenewSession(t.Context(), &slicerv1.RenewSessionRequest{Session: own.GetSession(), Revision: own.GetRevision()}); err != nil {
		t.Errorf("the session of the one that guesses: %v", err)
	}
}

// What a session is said to remember and does not is the end of that session alone.
func TestFalseMemory(t *testing.T) {
	t.Parallel()
	b := newBed(t, etcdtest.Start(t), 2)
	f := newFleet(t, b.direct, steady, b.readers())
	f.advance(1)
	stop := f.look()
	for name, memory := range map[string]*slicerv1.RenewSessionRequest{
		"a revision that is to come": {Revision: 1 << 60},
		"another's claim":            {Jobs: []*slicerv1.SessionMemory{{Job: "job", Guard: &slicerv1.Holder{Claim: &slicerv1.Claim{To: 1}, Created: 1}}}},
		"other records":              {Jobs: []*slicerv1.SessionMemory{{Job: "job", Revision: 1, Fingerprint: 7}}},
	} {
		own := open(t, slicerv1.NewLeaseServiceClient(dial(t, b.fronts[0].addr)), "job")
		memory.Session, memory.Revision = own.GetSession(), max(memory.GetRevision(), own.GetRevision())
		for _, f := range b.fronts {
			_, err := slicerv1.NewLeaseServiceClient(dial(t, f.addr)).RenewSession(t.Context(), memory)
			wantCode(t, name, err, codes.DataLoss)
		}
	}
	for name, memory := range map[string]*slicerv1.RenewSessionRequest{
		"no revision":         {},
		"a job twice":         {Revision: 9, Jobs: []*slicerv1.SessionMemory{{Job: "job"}, {Job: "job"}}},
		"no job's name":       {Revision: 9, Jobs: []*slicerv1.SessionMemory{{Job: "x/y"}}},
		"a bridge as a guard": {Revision: 9, Jobs: []*slicerv1.SessionMemory{{Job: "job", Guard: &slicerv1.Holder{Claim: &slicerv1.Claim{From: 1, To: 2}, Created: 1}}}},
		"records from later":  {Revision: 9, Jobs: []*slicerv1.SessionMemory{{Job: "job", Revision: 10}}},
	} {
		memory.Session = make([]byte, 16)
		_, err := slicerv1.NewLeaseServiceClient(dial(t, b.fronts[0].addr)).RenewSession(t.Context(), memory)
		wantCode(t, name, err, codes.InvalidArgument)
	}
	f.advance(2)
	if _, without := stop(); without > 0 {
		t.Errorf("others believed in nothing %d times", without)
	}
}

// A session that holds what was recalled, and renews for ever, holds up a change for a
// bounded time.
func TestHoldingUpAChangeEnds(t *testing.T) {
	t.Parallel()
	b := newBed(t, etcdtest.Start(t), 1)
	b.limit = time.Second
	f := newFleet(t, b.direct, lease.MaxTTL)
	for g := assignment.Generation(1); ; g++ {
		f.advance(g)
		began := time.Now()
		ok := false
		session, err := b.readers().OpenReader(t.Context(), 10*time.Second, "job")
		if err == nil {
			if got := session.TTL(); got != b.limit {
				t.Errorf("granted are %s, and the job's lease_duration is %s", got, b.limit)
			}
			_, ok, err = session.Acquire(t.Context(), "job", lease.GuardClaim(g))
		}
		switch late := time.Since(began) >= b.limit; { // on a machine that is starved
		case late && (errors.Is(err, lease.ErrLost) || errors.Is(err, lease.ErrUnavailable)):
		case err != nil || !ok:
			t.Fatal(ok, err)
		case !holdsUp(t, f, session, g+1):
			return
		}
	}
}

// holdsUp carries a job on while a session that holds its guard is renewed, and is true if
// there was no time to renew it often enough.
func holdsUp(t *testing.T, f *fleet, session lease.ReadSession, g assignment.Generation) (late bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	renewed := make(chan error, 1)
	go func() {
		before := time.Now()
		for {
			err := session.KeepAlive(ctx)
			now := time.Now()
			late = late || now.Sub(before) > session.TTL()/2
			if before = now; err != nil && (late || ctx.Err() != nil || !errors.Is(err, lease.ErrUnavailable) || strings.Contains(err.Error(), "held up")) {
				renewed <- err
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
	}()
	f.advance(g) // or it would wait for ever
	cancel()
	if err := <-renewed; !late && (!errors.Is(err, lease.ErrUnavailable) || !strings.Contains(err.Error(), "held up")) {
		t.Errorf("the last renewal: %v", err)
	}
	return late
}

// Bounds of a connection keep one process from taking all.
func TestBoundsOfAConnection(t *testing.T) {
	t.Parallel()
	b := newBed(t, etcdtest.Start(t), 1)
	c := slicerv1.NewLeaseServiceClient(dial(t, b.fronts[0].addr))
	var last *slicerv1.OpenSessionResponse
	for range front.MaxConnectionSessions {
		last = open(t, c, "job")
	}
	_, err := c.OpenSession(t.Context(), &slicerv1.OpenSessionRequest{TtlMs: 10_000, Jobs: []string{"job"}})
	wantCode(t, "one session more", err, codes.ResourceExhausted)
	if _, err := c.CloseSession(t.Context(), &slicerv1.CloseSessionRequest{Session: last.GetSession()}); err != nil {
		t.Fatal(err)
	}
	open(t, c, "job")
	open(t, slicerv1.NewLeaseServiceClient(dial(t, b.fronts[0].addr)), "job")
}
