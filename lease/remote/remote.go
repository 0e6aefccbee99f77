// Package remote reaches a lease store that another process serves (package
// serve), over gRPC: what the slicelets of a consistent job use where there is no etcd.
//
//	conn, err := grpc.NewClient("slicer:4720", ...)
//	reader, err := lease.NewReader(lease.Config{Readers: remote.New(conn)})
//
// The connection stays the caller's. It should have keepalive parameters, so that a
// peer that has vanished is noticed.
package remote

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/lease"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// silence ends a watch whose other end, which repeats itself every two seconds,
// has said nothing.
const silence = 7 * time.Second

// Store is a served lease store. It implements lease.TaskReaders.
type Store struct{ client slicerv1.LeaseServiceClient }

// New makes a store of a connection.
func New(conn grpc.ClientConnInterface) *Store {
	return &Store{slicerv1.NewLeaseServiceClient(conn)}
}

// OpenReader implements lease.Readers. The lease time is in whole milliseconds.
func (s *Store) OpenReader(ctx context.Context, ttl time.Duration, jobs ...string) (lease.ReadSession, error) {
	return s.open(ctx, ttl, jobs, nil)
}

// OpenReaderAs implements lease.TaskReaders.
func (s *Store) OpenReaderAs(ctx context.Context, ttl time.Duration, tasks map[string]string) (lease.ReadSession, error) {
	return s.open(ctx, ttl, slices.Sorted(maps.Keys(tasks)), tasks)
}

func (s *Store) open(ctx context.Context, ttl time.Duration, jobs []string, tasks map[string]string) (lease.ReadSession, error) {
	if err := errors.Join(lease.CheckTTL(ttl), lease.CheckJobs(jobs)); err != nil {
		return nil, err
	}
	ttl = ttl.Truncate(time.Millisecond)
	resp, err := s.client.OpenSession(ctx, &slicerv1.OpenSessionRequest{TtlMs: ttl.Milliseconds(), Jobs: jobs, Tasks: tasks})
	if err != nil {
		return nil, explain(ctx, err)
	}
	granted := millis(resp.GetTtlMs())
	if n := len(resp.GetSession()); n == 0 || n > 64 || granted <= 0 || granted > ttl {
		return nil, fmt.Errorf("%w: the answer grants %s where %s were asked for, in a session of %d bytes", lease.ErrUnavailable, granted, ttl, len(resp.GetSession()))
	}
	sum := sha256.Sum256(resp.GetSession())
	n := &session{client: s.client, secret: resp.GetSession(), id: binary.BigEndian.Uint64(sum[:]), asked: ttl, jobs: map[string]string{}}
	n.ttl.Store(int64(granted))
	for _, job := range resp.GetJobs() {
		n.jobs[job] = tasks[job]
	}
	return n, nil
}

type session struct {
	client slicerv1.LeaseServiceClient
	secret []byte // the right to the session: never logged
	id     uint64 // of its hash
	asked  time.Duration
	ttl    atomic.Int64

	mu   sync.Mutex
	jobs map[string]string // that it takes part in, and the names of the tasks
}

func (n *session) ID() uint64         { return n.id }
func (n *session) TTL() time.Duration { return time.Duration(n.ttl.Load()) }

func (n *session) KeepAlive(ctx context.Context) error {
	resp, err := n.client.RenewSession(ctx, &slicerv1.RenewSessionRequest{Session: n.secret})
	if err != nil {
		return explain(ctx, err)
	}
	// No more is believed than was asked for; what is not positive grants nothing.
	n.ttl.Store(int64(min(millis(resp.GetTtlMs()), n.asked)))
	return nil
}

func millis(ms int64) time.Duration {
	return time.Duration(min(max(ms, 0), lease.MaxTTL.Milliseconds()+1)) * time.Millisecond
}

func (n *session) Join(ctx context.Context, job string) error { return n.JoinAs(ctx, job, "") }

// JoinAs implements lease.TaskSession.
func (n *session) JoinAs(ctx context.Context, job, task string) error {
	n.mu.Lock()
	was, joined := n.jobs[job]
	n.mu.Unlock()
	if joined && (was == task || task == "") {
		return nil
	}
	if _, err := n.client.JoinJob(ctx, &slicerv1.JoinJobRequest{Session: n.secret, Job: job, Task: task}); err != nil {
		return explain(ctx, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.jobs[job] = task
	return nil
}

func (n *session) Close(ctx context.Context) error {
	_, err := n.client.CloseSession(ctx, &slicerv1.CloseSessionRequest{Session: n.secret})
	return explain(ctx, err)
}

func (n *session) Acquire(ctx context.Context, job string, c lease.Claim) (lease.Seen, bool, error) {
	resp, err := n.client.AcquireClaim(ctx, &slicerv1.AcquireClaimRequest{Session: n.secret, Job: job, Claim: claim(c)})
	if err != nil {
		return lease.Seen{}, false, explain(ctx, err)
	}
	seen, err := records(resp.GetRecords())
	return seen, resp.GetAcquired(), err
}

func (n *session) Release(ctx context.Context, job string, c lease.Claim) error {
	_, err := n.client.ReleaseClaim(ctx, &slicerv1.ReleaseClaimRequest{Session: n.secret, Job: job, Claim: claim(c)})
	return explain(ctx, err)
}

func claim(c lease.Claim) *slicerv1.Claim {
	return &slicerv1.Claim{From: int64(c.From), To: int64(c.To)}
}

// records decodes what the network brings.
func records(r *slicerv1.LeaseRecords) (lease.Seen, error) {
	s := lease.Seen{
		Revision: r.GetRevision(),
		Guard:    lease.Guard{Generation: assignment.Generation(r.GetGuard()), Open: r.GetGuardOpen()},
		Bridge:   lease.Bridge{From: assignment.Generation(r.GetBridgeFrom()), To: assignment.Generation(r.GetBridgeTo()), Open: r.GetBridgeOpen()},
	}
	g, b := s.Guard, s.Bridge
	bad := s.Revision < 0 || g.Generation < 0 || g.Generation > assignment.MaxGeneration || g.Generation == 0 && g.Open ||
		b != lease.Bridge{} && (b.From <= 0 || b.To <= b.From || b.To > assignment.MaxGeneration)
	if bad {
		return lease.Seen{}, fmt.Errorf("%w: guard %+v, bridge %+v, revision %d", lease.ErrCorrupt, g, b, s.Revision)
	}
	return s, nil
}

// Watch implements lease.ReadSession.
func (n *session) Watch(ctx context.Context, job string) (lease.Watcher, error) {
	// The stream outlives this call, until Close.
	live, cancel := context.WithCancel(context.Background())
	stream, err := n.client.WatchRecords(live, &slicerv1.WatchRecordsRequest{Session: n.secret, Job: job})
	if err != nil {
		cancel()
		return nil, explain(ctx, err)
	}
	return &watcher{stream: stream, cancel: cancel}, nil
}

type watcher struct {
	stream grpc.ServerStreamingClient[slicerv1.WatchRecordsResponse]
	cancel context.CancelFunc
	last   lease.Seen
	begun  bool
}

// Next ends the stream when ctx ends, or nothing is heard.
func (w *watcher) Next(ctx context.Context) (lease.Seen, error) {
	stop := context.AfterFunc(ctx, w.cancel)
	defer stop()
	for {
		quiet := time.AfterFunc(silence, w.cancel)
		resp, err := w.stream.Recv()
		quiet.Stop()
		if err != nil {
			return lease.Seen{}, explain(ctx, err)
		}
		seen, err := records(resp.GetRecords())
		if err != nil {
			return lease.Seen{}, err
		}
		if !w.begun || seen != w.last {
			w.last, w.begun = seen, true
			return seen, nil
		}
	}
}

func (w *watcher) Close() error {
	w.cancel()
	// Nothing of it is left once the stream has ended.
	for {
		if _, err := w.stream.Recv(); err != nil {
			return nil
		}
	}
}

// explain maps a status onto the contract's errors.
func explain(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ended := ctx.Err(); ended != nil {
		return ended
	}
	st := status.Convert(err)
	switch st.Code() {
	case codes.NotFound:
		return fmt.Errorf("%w: %s", lease.ErrLost, st.Message())
	case codes.PermissionDenied:
		return fmt.Errorf("%w: %s", lease.ErrRefused, st.Message())
	case codes.FailedPrecondition:
		return fmt.Errorf("%w: %s", lease.ErrSuspended, st.Message())
	case codes.InvalidArgument:
		return fmt.Errorf("lease store: %s", st.Message())
	}
	return fmt.Errorf("%w: %s: %s", lease.ErrUnavailable, st.Code(), st.Message())
}
