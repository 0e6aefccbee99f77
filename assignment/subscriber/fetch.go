package subscriber

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/backoff"
	"github.com/slicer-project/slicer/assignment/subscriber/protocol"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

const (
	// fetchGrace is how long a generation newer than the one held is left to the
	// stream before it is asked for: it is probably on its way.
	fetchGrace = 100 * time.Millisecond
	// fetchNext is how long a server may take before the next is asked as well.
	fetchNext = 250 * time.Millisecond
)

// Fetch returns one generation of the job's assignment, be it older than the
// newest: what the subscriber holds or is about to get, or else what a Distributor
// or, failing them, a Backup Distributor has under that number. It asks each
// server once. Its error matches ctx's, or ErrClosed, or ErrUnavailable.
func (s *Subscriber) Fetch(ctx context.Context, g assignment.Generation) (*assignment.Assignment, error) {
	fail := func(err error) (*assignment.Assignment, error) {
		return nil, fmt.Errorf("job %q: fetch of generation %d: %w", s.cfg.Job, g, err)
	}
	f := &fetch{s: s, generation: g, servers: s.servers()}
	ctx, cancel := context.WithCancel(ctx)
	defer f.wg.Wait()
	defer cancel()
	f.answers = make(chan fetched, len(f.servers))
	next := time.NewTimer(0)
	defer next.Stop()
	if held := s.State().Assignment; held != nil && held.Generation() < g {
		next.Reset(backoff.About(fetchGrace))
	}
	for {
		changed := s.Changed()
		if a := s.State().Assignment; a != nil && a.Generation() == g {
			return a, nil
		}
		select {
		case <-changed:
		case <-next.C:
			f.askNext(ctx)
			next.Reset(fetchNext)
		case r := <-f.answers:
			if r.err == nil {
				return r.a, nil
			}
			f.errs = append(f.errs, r.err)
			if len(f.errs) == len(f.servers) {
				return fail(fmt.Errorf("%w: %w", ErrUnavailable, errors.Join(f.errs...)))
			}
			next.Reset(0)
		case <-s.closing:
			return fail(ErrClosed)
		case <-ctx.Done():
			return fail(errors.Join(append([]error{context.Cause(ctx)}, f.errs...)...))
		}
	}
}

// fetch is one call of Fetch.
type fetch struct {
	s          *Subscriber
	generation assignment.Generation
	servers    []string
	asked      int
	answers    chan fetched // of the servers' number
	errs       []error
	wg         sync.WaitGroup
}

type fetched struct {
	a   *assignment.Assignment
	err error
}

// servers are all servers in the order in which to ask them: the one that serves
// now, the other Distributors, the Backup Distributors.
func (s *Subscriber) servers() []string {
	shuffled := func(servers []string) []string {
		addrs, near := addresses(servers, s.cfg.Zone)
		rand.Shuffle(len(addrs), func(i, j int) { addrs[i], addrs[j] = addrs[j], addrs[i] })
		protocol.NearFirst(addrs, near)
		return addrs
	}
	all := append(shuffled(s.cfg.Distributors), shuffled(s.cfg.Backups)...)
	if i := slices.Index(all, s.State().Peer); i > 0 {
		copy(all[1:i+1], all[:i])
		all[0] = s.State().Peer
	}
	return all
}

func (f *fetch) askNext(ctx context.Context) {
	if f.asked == len(f.servers) {
		return
	}
	addr := f.servers[f.asked]
	f.asked++
	f.wg.Go(func() {
		a, err := f.ask(ctx, addr)
		if err != nil {
			err = fmt.Errorf("%s: %w", addr, err)
		}
		f.answers <- fetched{a, err}
	})
}

// ask gets the assignment from one server. Whatever that sends, what is returned
// is valid and what was asked for.
func (f *fetch) ask(ctx context.Context, addr string) (*assignment.Assignment, error) {
	conn, err := grpc.NewClient("dns:///"+addr, f.s.opts...)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	cfg := &f.s.cfg
	req := &slicerv1.FetchRequest{Job: cfg.Job, Generation: int64(f.generation), Compressed: true}
	if cfg.Parts {
		req.Part = cfg.Task.Name
	}
	stream, err := slicerv1.NewSubscriberServiceClient(conn).Fetch(ctx, req)
	if err != nil {
		return nil, protocol.Explain(err)
	}
	asm := wire.Assembler{Parts: cfg.Parts}
	for {
		m, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil, fmt.Errorf("%w: it ended the stream", ErrUnavailable)
		case err != nil:
			return nil, protocol.Explain(err)
		}
		switch a, err := asm.Take(m, nil); {
		case err != nil:
			return nil, err
		case a == nil:
		case a.Job() != cfg.Job || a.Generation() != f.generation || !cfg.reads(a):
			return nil, fmt.Errorf("it sent generation %d of job %q, part %q", a.Generation(), a.Job(), a.Part())
		case cfg.Parts && a.Part() == "" && a.NumSlices() >= assignment.PartFrom:
			return assignment.NewCut(a).Part(cfg.Task.Name), nil // it knows no parts
		default:
			return a, nil
		}
	}
}
