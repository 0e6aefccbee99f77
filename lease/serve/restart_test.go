package serve_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/slicer-project/slicer/lease"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"google.golang.org/grpc/codes"
)

func TestLeaseTimeIsAtMostTheJobs(t *testing.T) {
	d := &durations{jobs: map[string]time.Duration{"slow": 8 * time.Second, "quick": 2 * time.Second, "damaged": -1}}
	s := openFor(t, &memory{}, nil, d, true)
	defer s.Close()
	lead(t, s, "slow")
	lead(t, s, "quick")
	c := slicerv1.NewLeaseServiceClient(dial(t, s))
	for _, x := range []struct {
		jobs  string
		ttl   time.Duration
		want  time.Duration
		takes string
	}{
		{"slow", lease.MaxTTL, 8 * time.Second, "slow"},
		{"slow", 3 * time.Second, 3 * time.Second, "slow"},
		{"slow quick", lease.MaxTTL, 2 * time.Second, "quick slow"},
		{"slow unknown damaged slow", lease.MaxTTL, 8 * time.Second, "slow"},
	} {
		resp := openSession(t, c, x.ttl, strings.Fields(x.jobs)...)
		if got := time.Duration(resp.GetTtlMs()) * time.Millisecond; got != x.want || strings.Join(resp.GetJobs(), " ") != x.takes {
			t.Errorf("for %s: %s in %s; want %s in %s", x.jobs, got, resp.GetJobs(), x.want, x.takes)
		}
	}
	for _, job := range []string{"unknown", "damaged"} {
		_, err := c.OpenSession(t.Context(), &slicerv1.OpenSessionRequest{TtlMs: 1000, Jobs: []string{job}})
		if wantCode(t, "a session for "+job, err, codes.Unavailable); err != nil && !strings.Contains(err.Error(), job) {
			t.Errorf("the error does not name job %s: %v", job, err)
		}
	}

	// Claims, and watches, are for the jobs named alone.
	session := openSession(t, c, lease.MaxTTL, "slow").GetSession()
	acquire := func(job string) error {
		_, err := c.AcquireClaim(t.Context(), &slicerv1.AcquireClaimRequest{Session: session, Job: job, Claim: &slicerv1.Claim{To: 1}})
		return err
	}
	wantCode(t, "a claim in a job that is not named", acquire("quick"), codes.InvalidArgument)
	stream, err := c.WatchRecords(t.Context(), &slicerv1.WatchRecordsRequest{Session: session, Job: "quick"})
	if err == nil {
		_, err = stream.Recv()
	}
	wantCode(t, "a watch of a job that is not named", err, codes.InvalidArgument)
	// A job that is joined later makes the lease time its own, and may be claimed
	// in when the session does not last for longer than that any more.
	if _, err := c.JoinJob(t.Context(), &slicerv1.JoinJobRequest{Session: session, Job: "quick"}); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "a claim under a session that lasts for longer than the job's leases", acquire("quick"), codes.Unavailable)
	if err := acquire("slow"); err != nil {
		t.Errorf("a claim in the job that was named first: %v", err)
	}
	_, err = c.JoinJob(t.Context(), &slicerv1.JoinJobRequest{Session: session, Job: "unknown"})
	wantCode(t, "joining an unknown job", err, codes.Unavailable)
}

func TestLeaseDurationChanges(t *testing.T) {
	bubble(t, func(t *testing.T, clock func() time.Duration) {
		d := &durations{jobs: map[string]time.Duration{"job": 8 * time.Second}}
		s := openFor(t, &memory{}, clock, d, true)
		defer s.Close()
		n, err := s.OpenReader(t.Context(), time.Minute, "job")
		if err != nil {
			t.Fatal(err)
		}
		renew := func(want time.Duration) {
			t.Helper()
			if err := n.KeepAlive(t.Context()); err != nil || n.TTL() != want {
				t.Errorf("after %s: renewed for %s, %v; want %s", clock(), n.TTL(), err, want)
			}
		}
		renew(8 * time.Second)
		d.set("job", 2*time.Second)
		renew(8 * time.Second) // what was granted stays granted
		time.Sleep(7 * time.Second)
		renew(2 * time.Second)
		d.set("job", 5*time.Second)
		renew(5 * time.Second)
		d.set("job", 0) // deleted: as before
		renew(5 * time.Second)
	})
}

// One session of ten minutes is asked for, and the store is restarted: the jobs
// wait for their own lease durations, and each only for its own.
func TestRestartWaitsForTheJobsOwnLeases(t *testing.T) {
	for _, clean := range []bool{false, true} {
		bubble(t, func(t *testing.T, clock func() time.Duration) {
			d := &durations{jobs: map[string]time.Duration{"quick": 2 * time.Second, "slow": 8 * time.Second, "idle": 3 * time.Second}}
			m := &memory{}
			first := openFor(t, m, clock, d, true)
			for _, jobs := range [][]string{{"quick"}, {"slow"}} {
				n, err := first.OpenReader(t.Context(), lease.MaxTTL, jobs...)
				if err != nil {
					t.Fatal(err)
				}
				if clean {
					n.Close(t.Context())
				}
			}
			first.Close()
			second := openFor(t, m, clock, d, false)
			defer second.Close()
			w, err := second.OpenWriter(t.Context(), time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			began := clock()
			for _, x := range []struct {
				job  string
				wait time.Duration
			}{{"quick", 2 * time.Second}, {"idle", 3 * time.Second}, {"slow", 8 * time.Second}} {
				time.Sleep(x.wait - time.Millisecond - (clock() - began))
				if _, err := second.OpenReader(t.Context(), time.Second, x.job); !errors.Is(err, lease.ErrUnavailable) {
					t.Errorf("%s: a session %s after the restart: %v", x.job, clock()-began, err)
				}
				if _, err := w.Lead(t.Context(), x.job); !errors.Is(err, lease.ErrUnavailable) {
					t.Errorf("%s: led %s after the restart: %v", x.job, clock()-began, err)
				}
				time.Sleep(time.Millisecond)
				if _, err := second.OpenReader(t.Context(), lease.MaxTTL, x.job); err != nil {
					t.Errorf("%s: no session %s after the restart: %v", x.job, clock()-began, err)
				}
				if _, err := w.Lead(t.Context(), x.job); err != nil {
					t.Errorf("%s: not led %s after the restart: %v", x.job, clock()-began, err)
				}
			}
		})
	}
}

// The lease duration was made shorter while a session had a longer one: the
// restart waits for that, until it is over.
func TestRestartWaitsForWhatWasGrantedBefore(t *testing.T) {
	bubble(t, func(t *testing.T, clock func() time.Duration) {
		d := &durations{jobs: map[string]time.Duration{"job": time.Minute}}
		m := &memory{}
		s := openFor(t, m, clock, d, true)
		long, err := s.OpenReader(t.Context(), lease.MaxTTL, "job")
		if err != nil {
			t.Fatal(err)
		}
		// Whatever is granted from then on, this one lasts until it has run out.
		d.set("job", 2*time.Second)
		if err := long.KeepAlive(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 8 {
			if _, err := s.OpenReader(t.Context(), lease.MaxTTL, "job"); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(1500 * time.Millisecond)
		// Nor does a process that ends before anything could be granted change that.
		s.Close()
		s = openFor(t, m, clock, d, false)
		time.Sleep(5 * time.Second)
		waits := func(want time.Duration) {
			t.Helper()
			s.Close()
			s = openFor(t, m, clock, d, false)
			began := clock()
			for {
				if _, err := s.OpenReader(t.Context(), lease.MinTTL, "job"); err == nil {
					break
				}
				time.Sleep(100 * time.Millisecond)
			}
			if got := clock() - began; got != want {
				t.Errorf("the restart waits for %s, want %s", got, want)
			}
		}
		waits(time.Minute)
		time.Sleep(3 * time.Second)
		waits(2 * time.Second)
		s.Close()
	})
}

// A suspension is over, and what is granted right then lasts for long: a process that ends without
// a word a little later does not have the next one wait for the suspension again.
func TestRestartDoesNotWaitForAnOldSuspension(t *testing.T) {
	bubble(t, func(t *testing.T, clock func() time.Duration) {
		const suspended = 8500 * time.Millisecond
		d := &durations{jobs: map[string]time.Duration{"slow": time.Minute, "quick": 2 * time.Second}}
		m := &memory{}
		s := openFor(t, m, clock, d, true)
		defer s.Close()
		if err := s.Suspend(t.Context(), suspended); err != nil {
			t.Fatal(err)
		}
		time.Sleep(suspended + 100*time.Millisecond)
		if _, err := s.OpenReader(t.Context(), lease.MaxTTL, "slow"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		left, err := m.Load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		next := openFor(t, &memory{records: left}, clock, d, false)
		defer next.Close()
		time.Sleep(2 * time.Second)
		if _, err := next.OpenReader(t.Context(), time.Second, "quick"); err != nil {
			t.Errorf("after the lease time of its job: %v", err)
		}
	})
}

// The directory is an older copy, of a time when nothing was granted: what was
// granted from the one that it replaces is waited for all the same.
func TestOlderCopyGrantsNothingAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, clock func() time.Duration) {
		d := &durations{jobs: map[string]time.Duration{"job": 5 * time.Second}}
		m := &memory{}
		s := openFor(t, m, clock, d, true)
		s.Close()
		copied, _ := m.Load(t.Context())
		s = openFor(t, m, clock, d, true)
		lead(t, s, "job")
		n, err := s.OpenReader(t.Context(), lease.MaxTTL, "job")
		if err != nil {
			t.Fatal(err)
		}
		if _, ok, err := n.Acquire(t.Context(), "job", lease.GuardClaim(1)); !ok || err != nil {
			t.Fatal(ok, err)
		}
		granted := clock()
		s.Close()
		s = openFor(t, &memory{records: copied}, clock, d, false)
		defer s.Close()
		for clock() < granted+n.TTL() {
			if _, err := s.OpenReader(t.Context(), time.Second, "job"); !errors.Is(err, lease.ErrUnavailable) {
				t.Fatalf("%s after a session of %s was granted another one is: %v", clock()-granted, n.TTL(), err)
			}
			time.Sleep(500 * time.Millisecond)
		}
		lead(t, s, "job")
	})
}
