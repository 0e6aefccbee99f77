package distributor

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/distributor/fanout"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// relayService is what Distributors of the second tier call.
type relayService struct {
	slicerv1.UnimplementedRelayServiceServer
	d *Distributor
}

type relayStream = grpc.BidiStreamingServer[slicerv1.AttachRequest, slicerv1.AttachResponse]

// Attach implements RelayService.
func (s relayService) Attach(stream relayStream) error {
	d := s.d
	if !d.enter() {
		return errClosing
	}
	defer d.wg.Done()
	m, err := firstOn(d, stream.Recv)
	if err != nil {
		return err
	}
	h := m.GetHello()
	switch id := h.GetDistributorId(); {
	case !assignment.ValidToken(id, assignment.MaxNameLen):
		return fanout.Invalid("hello", &assignment.FieldError{Field: "distributor_id", Value: id, Allowed: "1 to 253 printable ASCII characters without space or slash"})
	case id == d.cfg.ID:
		return status.Errorf(codes.FailedPrecondition, "distributor %q cannot be upstream of itself, or of another one with its id", id)
	case d.secondTier():
		return status.Errorf(codes.FailedPrecondition, "distributor %q is of the second tier itself, with the upstreams %s: name distributors of the first tier, which have assigners",
			d.cfg.ID, strings.Join(d.cfg.Upstreams, ","))
	case !d.cfg.ServeDistributors:
		return status.Errorf(codes.PermissionDenied, "distributor %q serves no distributors: it has not been told to (--serve-distributors)", d.cfg.ID)
	}
	if id := metadata.ValueFromIncomingContext(stream.Context(), assignerHeader); len(id) > 0 {
		return d.relay(stream, m, id[0])
	}
	return d.serveDownstream(stream, h)
}

// relay passes on what a Distributor of the second tier and an assigner have to say to
// each other. A side that is slow to take it slows the other down; nothing is kept here.
func (d *Distributor) relay(down relayStream, hello *slicerv1.AttachRequest, assigner string) error {
	d.mu.Lock()
	a := d.attachments[assigner]
	d.mu.Unlock()
	if a == nil {
		return status.Errorf(codes.Unavailable, "assigner %q is not attached to distributor %q", assignment.Clip(assigner, maxText), d.cfg.ID)
	}
	ctx, cancel := context.WithCancel(down.Context())
	defer cancel()
	up, err := slicerv1.NewAssignerServiceClient(a.conn).Attach(ctx)
	if err != nil {
		return err
	}
	end := make(chan error, 2)
	d.goRun(func() {
		for m := hello; ; {
			// Why sending fails the other direction knows.
			if up.Send(m) != nil {
				return
			}
			var err error
			if m, err = down.Recv(); err != nil {
				end <- endOf(err)
				return
			}
		}
	})
	d.goRun(func() {
		for {
			m, err := up.Recv()
			if err == nil {
				err = down.Send(m)
			}
			if err != nil {
				end <- endOfRelay(err)
				return
			}
		}
	})
	select {
	case err := <-end:
		return err
	case <-d.stop:
		return errClosing
	}
}

// endOfRelay is how a stream ends whose assigner has ended it.
func endOfRelay(err error) error {
	if errors.Is(err, io.EOF) {
		return status.Error(codes.Unavailable, "the assigner has ended the stream")
	}
	return err
}

// Describe implements RelayService.
func (s relayService) Describe(context.Context, *slicerv1.DescribeRequest) (*slicerv1.DescribeResponse, error) {
	d := s.d
	d.mu.Lock()
	defer d.mu.Unlock()
	out := &slicerv1.DescribeResponse{DistributorId: d.cfg.ID, Tier: uint32(d.tier())}
	for _, id := range slices.Sorted(maps.Keys(d.upstreams)) {
		out.Upstreams = append(out.Upstreams, &slicerv1.TierPeer{Id: id, Address: d.upstreams[id].address})
	}
	for _, id := range slices.Sorted(maps.Keys(d.downstreams)) {
		out.Downstreams = append(out.Downstreams, &slicerv1.TierPeer{Id: id})
	}
	return out, nil
}
