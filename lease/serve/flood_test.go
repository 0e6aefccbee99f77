package serve_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/lease/serve"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

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
		s, err := serve.Open(b.Context(), serve.Config{Storage: &memory{}, Terms: d.look, Fresh: true})
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
