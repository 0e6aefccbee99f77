package serve_test

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/lease/remote"
	"github.com/slicer-project/slicer/lease/serve"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// durations is a lookup of lease durations that a test may change.
type durations struct {
	mu   sync.Mutex
	jobs map[string]time.Duration
}

func (d *durations) look(_ context.Context, job string) (time.Duration, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.jobs[job] < 0 {
		return 0, errors.New("the record is damaged")
	}
	return d.jobs[job], nil
}

func (d *durations) set(job string, to time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.jobs[job] = to
}

// openFor opens a store that knows these jobs.
func openFor(t *testing.T, m *memory, clock func() time.Duration, d *durations, fresh bool) *serve.Store {
	t.Helper()
	s, err := serve.Open(t.Context(), serve.Config{Storage: m, LeaseTime: d.look, Fresh: fresh, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// served serves a store on loopback and returns its address.
func served(t testing.TB, s *serve.Store, opts ...grpc.ServerOption) string {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(opts...)
	s.Register(server)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(lis); err != nil {
			t.Errorf("Serve: %v", err)
		}
	}()
	t.Cleanup(func() { server.Stop(); <-done })
	return lis.Addr().String()
}

// connect opens a connection of its own, from another address if one is given.
func connect(t testing.TB, addr, from string) *grpc.ClientConn {
	t.Helper()
	opts := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	if from != "" {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		opts = append(opts, grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) { return d.DialContext(ctx, "tcp", to) }))
	}
	conn, err := grpc.NewClient(addr, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// lead opens an assigner's session and brings generation 1 of a job in force.
func lead(t *testing.T, s *serve.Store, job string) (lease.WriteSession, lease.Token) {
	t.Helper()
	w, err := s.OpenWriter(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	token, err := w.Lead(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lease.Advance(t.Context(), w, lease.Change{Job: job, Token: token, Wanted: 1}); err != nil {
		t.Fatal(err)
	}
	return w, token
}

func openSession(t *testing.T, c slicerv1.LeaseServiceClient, ttl time.Duration, jobs ...string) *slicerv1.OpenSessionResponse {
	t.Helper()
	resp, err := c.OpenSession(t.Context(), &slicerv1.OpenSessionRequest{TtlMs: ttl.Milliseconds(), Jobs: jobs})
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func wantCode(t *testing.T, what string, err error, want codes.Code) {
	t.Helper()
	if status.Code(err) != want {
		t.Errorf("%s: %v, want %s", what, err, want)
	}
}

// everyCall sends each call that carries a session.
func everyCall(ctx context.Context, c slicerv1.LeaseServiceClient, session []byte, job string) map[string]error {
	claim, out := &slicerv1.Claim{To: 1}, map[string]error{}
	_, out["RenewSession"] = c.RenewSession(ctx, &slicerv1.RenewSessionRequest{Session: session})
	_, out["JoinJob"] = c.JoinJob(ctx, &slicerv1.JoinJobRequest{Session: session, Job: job})
	_, out["AcquireClaim"] = c.AcquireClaim(ctx, &slicerv1.AcquireClaimRequest{Session: session, Job: job, Claim: claim})
	_, out["ReleaseClaim"] = c.ReleaseClaim(ctx, &slicerv1.ReleaseClaimRequest{Session: session, Job: job, Claim: claim})
	stream, err := c.WatchRecords(ctx, &slicerv1.WatchRecordsRequest{Session: session, Job: job})
	if err == nil {
		_, err = stream.Recv()
	}
	out["WatchRecords"] = err
	_, out["CloseSession"] = c.CloseSession(ctx, &slicerv1.CloseSessionRequest{Session: session})
	return out
}

// guesses are what a stranger may take for the name of a session.
func guesses(seen ...[]byte) (ids [][]byte) {
	ids = append(ids, nil, []byte{}, make([]byte, 16), []byte(strings.Repeat("\xff", 16)), make([]byte, 1<<10))
	for epoch := range uint64(4) {
		for n := range uint64(8) {
			id := epoch<<32 + n // what sessions are numbered by inside
			eight := binary.BigEndian.AppendUint64(nil, id)
			ids = append(ids, eight, append(make([]byte, 8), eight...), append(binary.LittleEndian.AppendUint64(nil, id), make([]byte, 8)...))
		}
	}
	for range 32 {
		id := make([]byte, 16)
		rand.Read(id)
		ids = append(ids, id)
	}
	for _, s := range seen {
		for bit := range 8 * len(s) {
			id := append([]byte(nil), s...)
			id[bit/8] ^= 1 << (bit % 8)
			ids = append(ids, id)
		}
		ids = append(ids, s[:len(s)-1], append(append([]byte(nil), s...), 0))
	}
	return ids
}

// A stranger sends every call with every name of a session that it can think of:
// all are of unknown sessions, a reader keeps its claim, and the assigner its job.
func TestForeignSessionsAreUnknown(t *testing.T) {
	s := open(t, &memory{}, nil)
	defer s.Close()
	addr := served(t, s)
	w, token := lead(t, s, "job")
	honest, err := remote.New(connect(t, addr, "")).OpenReader(t.Context(), time.Minute, "job")
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, err := honest.Acquire(t.Context(), "job", lease.GuardClaim(1)); !ok || err != nil {
		t.Fatal(ok, err)
	}
	stranger := slicerv1.NewLeaseServiceClient(connect(t, addr, ""))
	own := openSession(t, stranger, time.Minute, "job").GetSession()
	logged := binary.BigEndian.AppendUint64(nil, honest.ID()) // what logs and metrics say
	writer := binary.BigEndian.AppendUint64(nil, w.ID())
	for _, id := range append(guesses(own), logged, append(logged, logged...), writer, append(make([]byte, 8), writer...)) {
		for call, err := range everyCall(t.Context(), stranger, id, "job") {
			wantCode(t, fmt.Sprintf("%s of %x", call, id), err, codes.NotFound)
			if err != nil && status.Convert(err).Message() != lease.ErrLost.Error() {
				t.Errorf("%s of %x: the answer tells more than that there is no such session: %v", call, id, err)
			}
		}
	}
	if err := honest.KeepAlive(t.Context()); err != nil {
		t.Errorf("the honest session: %v", err)
	}
	if err := w.KeepAlive(t.Context()); err != nil {
		t.Errorf("the assigner's session: %v", err)
	}
	if st, err := w.State(t.Context(), "job"); err != nil || st.GuardReaders != 1 {
		t.Errorf("%d readers of the guard, %v; want 1", st.GuardReaders, err)
	}
	if again, err := w.Lead(t.Context(), "job"); err != nil || again != token {
		t.Errorf("the assigner leads with token %d, %v; want %d", again, err, token)
	}
}

// A process that has lost its connection goes on over another one.
func TestSessionOutlivesItsConnection(t *testing.T) {
	s := open(t, &memory{}, nil)
	defer s.Close()
	addr := served(t, s)
	lead(t, s, "job")
	first := connect(t, addr, "")
	session := openSession(t, slicerv1.NewLeaseServiceClient(first), time.Minute, "job").GetSession()
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	c := slicerv1.NewLeaseServiceClient(connect(t, addr, ""))
	if _, err := c.RenewSession(t.Context(), &slicerv1.RenewSessionRequest{Session: session}); err != nil {
		t.Errorf("renewal over another connection: %v", err)
	}
	resp, err := c.AcquireClaim(t.Context(), &slicerv1.AcquireClaimRequest{Session: session, Job: "job", Claim: &slicerv1.Claim{To: 1}})
	if err != nil || !resp.GetAcquired() {
		t.Errorf("claim over another connection: %v, %v", resp, err)
	}
}

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

// A session renews itself for ever and never releases: the change ends all the
// same, after the job's lease duration; no sooner than the session is over.
func TestHolderThatNeverReleasesIsEvicted(t *testing.T) {
	for _, renews := range []bool{true, false} {
		bubble(t, func(t *testing.T, clock func() time.Duration) {
			const wait, duration = 3 * time.Second, 5 * time.Second
			d := &durations{jobs: map[string]time.Duration{"job": duration}}
			s := openFor(t, &memory{}, clock, d, true)
			defer s.Close()
			w, token := lead(t, s, "job")
			n, err := s.OpenReader(t.Context(), lease.MaxTTL, "job")
			if err != nil {
				t.Fatal(err)
			}
			if _, ok, err := n.Acquire(t.Context(), "job", lease.GuardClaim(1)); !ok || err != nil {
				t.Fatal(ok, err)
			}
			var trusted atomic.Int64 // until when a reader believes that counts from before the call
			done := make(chan struct{})
			go func() {
				defer close(done)
				for {
					before := clock()
					if trusted.Load() == 0 {
						trusted.Store(int64(before + n.TTL()))
					}
					if err := n.KeepAlive(t.Context()); err != nil {
						return
					}
					if trusted.Store(max(trusted.Load(), int64(before+n.TTL()))); !renews {
						return
					}
					time.Sleep(300 * time.Millisecond)
				}
			}()
			var recalled time.Duration
			began := clock()
			_, err = lease.Advance(t.Context(), w, lease.Change{Job: "job", Token: token, Wanted: 2, Wait: wait,
				Observe: func(s lease.Step, _ lease.State, _ time.Duration) {
					switch s.Kind {
					case lease.Recall:
						recalled = clock()
					case lease.Rewrite:
						if took := clock() - recalled; took > duration+50*time.Millisecond {
							t.Errorf("keys were without an owner for %s, leases last for %s", took, duration)
						}
						if over := time.Duration(trusted.Load()); clock() < over {
							t.Errorf("the guard was rewritten %s before the holder was over", over-clock())
						}
					}
				}})
			if took := clock() - began; err != nil || renews && took > wait+duration+100*time.Millisecond {
				t.Errorf("the change took %s: %v", took, err)
			}
			<-done
			if _, _, err := n.Acquire(t.Context(), "job", lease.GuardClaim(2)); !errors.Is(err, lease.ErrLost) {
				t.Errorf("the session goes on: %v", err)
			}
		})
	}
}

// A session that lets go in time is renewed as ever.
func TestHolderThatReleasesStays(t *testing.T) {
	bubble(t, func(t *testing.T, clock func() time.Duration) {
		d := &durations{jobs: map[string]time.Duration{"job": 5 * time.Second}}
		s := openFor(t, &memory{}, clock, d, true)
		defer s.Close()
		w, token := lead(t, s, "job")
		n, err := s.OpenReader(t.Context(), lease.MaxTTL, "job")
		if err != nil {
			t.Fatal(err)
		}
		if _, ok, err := n.Acquire(t.Context(), "job", lease.GuardClaim(1)); !ok || err != nil {
			t.Fatal(ok, err)
		}
		go func() {
			for range 18 { // 4.5 s, the second half of them past the recall
				time.Sleep(250 * time.Millisecond)
				if err := n.KeepAlive(t.Context()); err != nil {
					t.Errorf("after %s: %v", clock(), err)
				}
			}
			if err := n.Release(t.Context(), "job", lease.GuardClaim(1)); err != nil {
				t.Error(err)
			}
		}()
		if _, err := lease.Advance(t.Context(), w, lease.Change{Job: "job", Token: token, Wanted: 2, Wait: 2 * time.Second}); err != nil {
			t.Fatal(err)
		}
		if err := n.KeepAlive(t.Context()); err != nil || n.TTL() != 5*time.Second {
			t.Errorf("renewed for %s, %v", n.TTL(), err)
		}
	})
}

// A flood of sessions from one address over as many connections as it likes shuts
// out itself alone.
func TestFloodOfSessions(t *testing.T) {
	d := &durations{jobs: map[string]time.Duration{"job": lease.MaxTTL}}
	s := openFor(t, &memory{}, nil, d, true)
	defer s.Close()
	addr := served(t, s)
	flood(t, addr, 2*serve.MaxConnectionSessions, serve.MaxPeerSessions/serve.MaxConnectionSessions+1)
	other := slicerv1.NewLeaseServiceClient(connect(t, addr, "127.0.0.2"))
	session := openSession(t, other, time.Minute, "job").GetSession()
	if _, err := other.RenewSession(t.Context(), &slicerv1.RenewSessionRequest{Session: session}); err != nil {
		t.Errorf("another address, beside the flood: %v", err)
	}
	if _, err := s.OpenWriter(t.Context(), time.Minute); err != nil {
		t.Errorf("an assigner, beside the flood: %v", err)
	}
	again := slicerv1.NewLeaseServiceClient(connect(t, addr, ""))
	_, err := again.OpenSession(t.Context(), &slicerv1.OpenSessionRequest{TtlMs: 1000, Jobs: []string{"job"}})
	wantCode(t, "the flood's own address", err, codes.ResourceExhausted)
}

// flood opens sessions over connections from one address, and returns how many
// were granted.
func flood(t testing.TB, addr string, each, connections int) (granted int) {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range connections {
		c := slicerv1.NewLeaseServiceClient(connect(t, addr, "127.0.0.1"))
		wg.Go(func() {
			n := 0
			for range each {
				_, err := c.OpenSession(t.Context(), &slicerv1.OpenSessionRequest{TtlMs: lease.MaxTTL.Milliseconds(), Jobs: []string{"job"}})
				if err == nil {
					n++
				} else if status.Code(err) != codes.ResourceExhausted {
					t.Errorf("OpenSession: %v", err)
					return
				}
			}
			if n > serve.MaxConnectionSessions {
				t.Errorf("%d sessions of one connection, at most %d are to be granted", n, serve.MaxConnectionSessions)
			}
			mu.Lock()
			granted += n
			mu.Unlock()
		})
	}
	wg.Wait()
	if granted > serve.MaxPeerSessions {
		t.Errorf("%d sessions of one address, at most %d are to be granted", granted, serve.MaxPeerSessions)
	}
	return granted
}

// Watches of one connection are bounded, and a session has one for each job.
func TestWatchesAreBounded(t *testing.T) {
	s := open(t, &memory{}, nil)
	defer s.Close()
	c := slicerv1.NewLeaseServiceClient(dial(t, s))
	watch := func(session []byte, job string) (slicerv1.LeaseService_WatchRecordsClient, error) {
		stream, err := c.WatchRecords(t.Context(), &slicerv1.WatchRecordsRequest{Session: session, Job: job})
		if err == nil {
			_, err = stream.Recv()
		}
		return stream, err
	}
	one := openSession(t, c, time.Minute, "job").GetSession()
	old, err := watch(one, "job")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch(one, "job"); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = old.Recv()
	}
	wantCode(t, "a watch that another one replaces", err, codes.Aborted)

	var many []string
	for i := range lease.MaxJobs {
		many = append(many, fmt.Sprint("job-", i))
	}
	begun := 0
	var refused error
	for range serve.MaxConnectionWatches/lease.MaxJobs + 1 {
		session := openSession(t, c, time.Minute, many...).GetSession()
		for _, job := range many {
			if _, err := watch(session, job); err == nil {
				begun++
			} else {
				refused = err
			}
		}
	}
	if wantCode(t, "one watch too many", refused, codes.ResourceExhausted); begun > serve.MaxConnectionWatches {
		t.Errorf("%d watches of one connection, at most %d", begun, serve.MaxConnectionWatches)
	}
	if _, err := c.JoinJob(t.Context(), &slicerv1.JoinJobRequest{Session: openSession(t, c, time.Minute, many...).GetSession(), Job: "more"}); status.Code(err) != codes.Unavailable {
		t.Errorf("job %d of a session: %v", lease.MaxJobs+1, err)
	}
	// The end of the session is that of its watches.
	if _, err := c.CloseSession(t.Context(), &slicerv1.CloseSessionRequest{Session: one}); err != nil {
		t.Fatal(err)
	}
	_, err = watch(one, "job")
	wantCode(t, "a watch of a session that is closed", err, codes.NotFound)
}

// BenchmarkFlood is 131,072 OpenSessions over 64 connections from one address,
// beside a reader at another one that renews its session and a new one that opens it:
//
//	go test ./lease/serve -run '^$' -bench Flood -benchtime 1x
func BenchmarkFlood(b *testing.B) {
	d := &durations{jobs: map[string]time.Duration{"job": lease.MaxTTL}}
	for b.Loop() {
		s, err := serve.Open(b.Context(), serve.Config{Storage: &memory{}, LeaseTime: d.look, Fresh: true})
		if err != nil {
			b.Fatal(err)
		}
		addr := served(b, s)
		honest := slicerv1.NewLeaseServiceClient(connect(b, addr, "127.0.0.2"))
		ask := &slicerv1.OpenSessionRequest{TtlMs: 5000, Jobs: []string{"job"}}
		mine, err := honest.OpenSession(b.Context(), ask)
		if err != nil {
			b.Fatal(err)
		}
		ctx, cancel := context.WithCancel(b.Context())
		var wg sync.WaitGroup
		var renewed, opened time.Duration // the longest that each took
		wg.Go(func() {
			for ctx.Err() == nil {
				began := time.Now()
				if _, err := honest.RenewSession(b.Context(), &slicerv1.RenewSessionRequest{Session: mine.GetSession()}); err != nil {
					b.Errorf("renewal: %v", err)
				}
				renewed = max(renewed, time.Since(began))
				began = time.Now()
				other, err := honest.OpenSession(b.Context(), ask)
				if err != nil {
					b.Errorf("opening: %v", err)
				}
				opened = max(opened, time.Since(began))
				if _, err := honest.CloseSession(b.Context(), &slicerv1.CloseSessionRequest{Session: other.GetSession()}); err != nil {
					b.Errorf("closing: %v", err)
				}
				time.Sleep(10 * time.Millisecond)
			}
		})
		const connections = 64
		granted := flood(b, addr, 131072/connections, connections)
		cancel()
		wg.Wait()
		s.Close()
		b.ReportMetric(float64(granted), "granted")
		b.ReportMetric(renewed.Seconds()*1000, "renewal-ms")
		b.ReportMetric(opened.Seconds()*1000, "opening-ms")
	}
}
