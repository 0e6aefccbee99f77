// Package remote reaches leases that other processes serve, over gRPC: a lease store
// (package serve), where there is no etcd, or fronts of an etcd (package front).
//
//	conn, err := grpc.NewClient("slicer:4720", append(remote.DialOptions(), grpc.WithTransportCredentials(...))...)
//	reader, err := lease.NewReader(lease.Config{Readers: remote.New(conn)})
//
// Several connections are to several fronts of one etcd. One of them is used at a time, and
// the next when it does not answer: sessions go on there. The connections stay the
// caller's, and may be made with any options; DialOptions has those that are best.
package remote

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slicer-project/slicer/lease"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
)

// Store is a served lease store. It implements lease.TaskReaders.
type Store struct {
	servers []slicerv1.LeaseServiceClient

	mu   sync.Mutex
	at   *server
	next int
}

// server is the one that is used now.
type server struct {
	slicerv1.LeaseServiceClient
	left context.Context // ends when another one is used
	end  context.CancelFunc
	// plain: it does not know RenewSessions.
	plain atomic.Bool
}

const (
	pingAfter  = 10 * time.Second
	pingWithin = 5 * time.Second
	window     = 64 << 10
)

// DialOptions are for connections that are made for leases: a peer that has vanished is
// noticed, and windows are fixed, since nothing that is sent is large. With windows that
// gRPC sizes, each renewal is followed by a ping that measures the connection, and costs
// both ends nearly twice as much. Credentials are not among them.
func DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingAfter, Timeout: pingWithin}),
		grpc.WithStaticStreamWindowSize(window), grpc.WithStaticConnWindowSize(window),
	}
}

// New makes a store of a connection, or of several to fronts of one etcd. The first that is used is
// drawn. It panics without any.
func New(conns ...grpc.ClientConnInterface) *Store {
	s := &Store{next: rand.IntN(len(conns))}
	for _, c := range conns {
		s.servers = append(s.servers, slicerv1.NewLeaseServiceClient(c))
	}
	s.leave(nil)
	return s
}

// server returns the one that is used now.
func (s *Store) server() *server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at
}

// leave uses the next server, unless one other than v is used already. It reports
// whether there is another one.
func (s *Store) leave(v *server) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at != v || v != nil && len(s.servers) == 1 {
		if s.at != nil {
			s.at.plain.Store(false) // what comes back may be of a later version
		}
		return len(s.servers) > 1
	}
	if v != nil {
		v.end()
	}
	s.at = &server{LeaseServiceClient: s.servers[s.next]}
	s.at.left, s.at.end = context.WithCancel(context.Background())
	s.next = (s.next + 1) % len(s.servers)
	return len(s.servers) > 1
}

// silent reports whether an error is a server's that does not answer, or cannot reach
// its store.
func silent(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Unimplemented:
		return true
	}
	return false
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
	call := ctx
	if len(s.servers) > 1 { // one that hangs leaves time for others
		var cancel context.CancelFunc
		call, cancel = context.WithTimeout(ctx, ttl/2)
		defer cancel()
	}
	at := s.server()
	resp, err := at.OpenSession(call, &slicerv1.OpenSessionRequest{TtlMs: ttl.Milliseconds(), Jobs: jobs, Tasks: tasks})
	if err != nil {
		if silent(err) {
			s.leave(at)
		}
		return nil, explain(ctx, err)
	}
	granted := millis(resp.GetTtlMs())
	if n := len(resp.GetSession()); n == 0 || n > 64 || granted <= 0 || granted > ttl {
		return nil, fmt.Errorf("%w: the answer grants %s where %s were asked for, in a session of %d bytes", lease.ErrUnavailable, granted, ttl, len(resp.GetSession()))
	}
	sum := sha256.Sum256(resp.GetSession())
	n := &session{s: s, secret: resp.GetSession(), id: binary.BigEndian.Uint64(sum[:]), asked: ttl, memory: newMemory(resp.GetRevision(), resp.GetJobs(), tasks), watches: map[*watcher]struct{}{}}
	n.renewals = newRenewals(n)
	n.ttl.Store(int64(granted))
	return n, nil
}

func millis(ms int64) time.Duration {
	return time.Duration(min(max(ms, 0), lease.MaxTTL.Milliseconds()+1)) * time.Millisecond
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
	case codes.DataLoss:
		return fmt.Errorf("%w: %s", lease.ErrWentBack, st.Message())
	case codes.FailedPrecondition:
		return fmt.Errorf("%w: %s", lease.ErrSuspended, st.Message())
	case codes.InvalidArgument:
		return fmt.Errorf("lease store: %s", st.Message())
	}
	return fmt.Errorf("%w: %s: %s", lease.ErrUnavailable, st.Code(), st.Message())
}
