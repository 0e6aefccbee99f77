// Package relay serves Distributors of the second tier, which are attached to Distributors
// of the first instead of to assigners (RelayService). One of the second has two kinds of
// streams. On the first it asks for assignments, and gets what the Distributor of the first
// tier holds: to each job that it wants it is one more subscriber. The others are passed on
// to an assigner each, unread and unmerged, so that an assigner knows which tasks each
// Distributor could have heard, how far its subscribers are, and when it is gone.
package relay

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/access/enforce"
	"github.com/slicer-project/slicer/distributor/fanout"
	"github.com/slicer-project/slicer/distributor/internal/handlers"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

const (
	// assignerHeader names, by its id, the assigner that a stream is to be passed on to.
	assignerHeader = "slicer-assigner"
	// maxText bounds what others say in a log line or an error, bytes.
	maxText = 256
	// maxJobs bounds the jobs that one Distributor may want.
	maxJobs = 1 << 16
	// helloWithin bounds the time until a Distributor says hello.
	helloWithin = 5 * time.Second
)

// Through names the assigner that a stream is to be passed on to, in the context of a call.
func Through(ctx context.Context, assigner string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, assignerHeader, assigner)
}

// Config says what a Service needs to know.
type Config struct {
	ID, Zone string // of this Distributor
	// Upstreams make it one of the second tier, which refuses others.
	Upstreams []string
	// Serve lets Distributors of the second tier in.
	Serve  bool
	Source Source
	// Rights say who may be a Distributor. nil allows it to all.
	Rights *enforce.Rights
	Logger *slog.Logger
	// Attached is told how many Distributors of the second tier there are.
	Attached func(n int)
}

// Source is what the Distributor holds and is attached to. All methods are safe for
// concurrent use.
type Source interface {
	// Assigner is the connection to an assigner, nil if it is not attached.
	Assigner(id string) grpc.ClientConnInterface
	// Upstreams are the Distributors that this one is attached to.
	Upstreams() []*slicerv1.TierPeer
	// Preferences are the newest views of which assigners are preferred, one a store.
	Preferences() []*slicerv1.Preference
	// Fetch sends one generation whole. The error is a gRPC status.
	Fetch(ctx context.Context, req *slicerv1.FetchRequest, send func(*slicerv1.WatchResponse)) error
	// Join enters a subscriber of a job, which is sent what it lacks until it leaves. The
	// error is a gRPC status.
	Join(job string, in fanout.Hello, send func(Feed, *slicerv1.WatchResponse)) (Feed, error)
}

// Feed is what one Distributor gets of a job. All methods are safe for concurrent use.
type Feed interface {
	// Done is closed when there will be nothing more; Err, a gRPC status, says why.
	Done() <-chan struct{}
	Err() error
	// Status is the last that an assigner has said of the job, nil before the first.
	Status() *slicerv1.JobStatus
	// Age is how long ago a generation was stored, 0 if that is not known.
	Age(now time.Time, g assignment.Generation) time.Duration
	// Took says that a generation was sent.
	Took(now time.Time, g assignment.Generation)
	// Holds says what the Distributor holds, whatever it was sent before, and whether it
	// reads compressed wholes.
	Holds(now time.Time, v fanout.Version, checksum uint64, compressed bool)
	// HeldElsewhere says what a slicelet of the Distributor holds.
	HeldElsewhere(now time.Time, v fanout.Version)
	Leave(now time.Time)
}

// Service serves RelayService. All methods are safe for concurrent use.
type Service struct {
	slicerv1.UnimplementedRelayServiceServer
	cfg      Config
	handlers *handlers.Group

	mu          sync.Mutex
	downstreams map[string]*downstream // by the Distributor's id
}

// New makes a Service.
func New(cfg Config) *Service {
	return &Service{cfg: cfg, handlers: handlers.New(), downstreams: make(map[string]*downstream)}
}

// Close ends all streams and waits for them.
func (s *Service) Close() { s.handlers.Close() }

// Notify says that the views of which assigners are preferred may have changed.
func (s *Service) Notify() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.downstreams {
		b.notify()
	}
}

type relayStream = grpc.BidiStreamingServer[slicerv1.AttachRequest, slicerv1.AttachResponse]

// Attach implements RelayService.
func (s *Service) Attach(stream relayStream) error {
	if err := s.handlers.Enter(); err != nil {
		return err
	}
	defer s.handlers.Leave()
	as := &standing{rights: s.cfg.Rights, ctx: stream.Context()}
	if err := as.check(); err != nil {
		return err
	}
	m, err := handlers.First(s.handlers, stream.Recv, helloWithin, "hello")
	if err != nil {
		return err
	}
	h := m.GetHello()
	switch id := h.GetDistributorId(); {
	case !assignment.ValidToken(id, assignment.MaxNameLen):
		return fanout.Invalid("hello", &assignment.FieldError{Field: "distributor_id", Value: id, Allowed: "1 to 253 printable ASCII characters without space or slash"})
	case id == s.cfg.ID:
		return status.Errorf(codes.FailedPrecondition, "distributor %q cannot be upstream of itself, or of another one with its id", id)
	case len(s.cfg.Upstreams) > 0:
		return status.Errorf(codes.FailedPrecondition, "distributor %q is of the second tier itself, with the upstreams %s: name distributors of the first tier, which have assigners",
			s.cfg.ID, strings.Join(s.cfg.Upstreams, ","))
	case !s.cfg.Serve:
		return status.Errorf(codes.PermissionDenied, "distributor %q serves no distributors: it has not been told to (--serve-distributors)", s.cfg.ID)
	}
	if id := metadata.ValueFromIncomingContext(stream.Context(), assignerHeader); len(id) > 0 {
		return s.passOn(stream, as, m, id[0])
	}
	return s.serve(stream, as, h)
}

// standing is the right of a stream's peer to be a Distributor.
type standing struct {
	rights  *enforce.Rights
	ctx     context.Context
	changed <-chan struct{} // closed when it is to be checked anew
}

// check returns PERMISSION_DENIED if the policy in force does not give the right.
func (x *standing) check() error {
	_, x.changed = x.rights.Policy()
	return x.rights.CheckPlane(x.rights.Peer(x.ctx), "RelayService.Attach")
}

// passOn passes on what a Distributor of the second tier and an assigner have to say to
// each other. A side that is slow to take it slows the other down; nothing is kept here.
func (s *Service) passOn(down relayStream, as *standing, hello *slicerv1.AttachRequest, assigner string) error {
	conn := s.cfg.Source.Assigner(assigner)
	if conn == nil {
		return status.Errorf(codes.Unavailable, "assigner %q is not attached to distributor %q", assignment.Clip(assigner, maxText), s.cfg.ID)
	}
	// The id that the Distributor has is its identity's, whichever of the first tier it is
	// passed on by.
	ctx, cancel := context.WithCancel(enforce.Forward(down.Context(), as.rights.Peer(as.ctx)))
	defer cancel()
	up, err := slicerv1.NewAssignerServiceClient(conn).Attach(ctx)
	if err != nil {
		return err
	}
	end := make(chan error, 2)
	s.handlers.Go(func() {
		for m := hello; ; {
			// Why sending fails the other direction knows.
			if up.Send(m) != nil {
				return
			}
			var err error
			if m, err = down.Recv(); err != nil {
				end <- handlers.EndOf(err)
				return
			}
		}
	})
	s.handlers.Go(func() {
		for {
			m, err := up.Recv()
			if err == nil {
				err = down.Send(m)
			}
			if err != nil {
				end <- endOfAssigner(err)
				return
			}
		}
	})
	for {
		select {
		case err := <-end:
			return err
		case <-as.changed:
			if err := as.check(); err != nil {
				return err
			}
		case <-s.handlers.Done():
			return handlers.ErrClosing
		}
	}
}

// endOfAssigner is how a stream ends whose assigner has ended it.
func endOfAssigner(err error) error {
	if errors.Is(err, io.EOF) {
		return status.Error(codes.Unavailable, "the assigner has ended the stream")
	}
	return err
}

// Describe implements RelayService.
func (s *Service) Describe(ctx context.Context, _ *slicerv1.DescribeRequest) (*slicerv1.DescribeResponse, error) {
	if err := s.cfg.Rights.CheckNamed(s.cfg.Rights.Peer(ctx), "Describe"); err != nil {
		return nil, err
	}
	out := &slicerv1.DescribeResponse{DistributorId: s.cfg.ID, Tier: 1, Upstreams: s.cfg.Source.Upstreams()}
	if len(s.cfg.Upstreams) > 0 {
		out.Tier = 2
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(s.downstreams)) {
		out.Downstreams = append(out.Downstreams, &slicerv1.TierPeer{Id: id})
	}
	return out, nil
}
