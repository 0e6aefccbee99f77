package planted

import (
	"bytes"
	"compress/flate"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

const (
	firstWait, mostWait = 250 * time.Millisecond, 5 * time.Second
	// firstWord is how long a server may say nothing after the hello.
	firstWord = 15 * time.Second
)

// follow streams from one server at a time until ctx ends.
func (p *subscriber) follow(ctx context.Context, servers []string, backup bool) {
	if len(servers) == 0 {
		return
	}
	at, fails := rand.IntN(len(servers)), 0
	for ctx.Err() == nil {
		s := &stream{p: p, servers: servers, at: at, backup: backup, next: -1}
		err := s.run(ctx)
		if s.served {
			fails = 0
		}
		fails++
		if s.next >= 0 { // another one is heard
			at = s.next
			continue
		}
		if p.has("gives-up") && status.Code(err) == codes.NotFound {
			return
		}
		at = (at + 1) % len(servers)
		after := retryAfter(err)
		if fails >= len(servers) && !backup && after == 0 {
			p.useBackups(ctx)
		}
		p.pause(ctx, fails, len(servers), after)
	}
}

// pause waits between two attempts.
func (p *subscriber) pause(ctx context.Context, fails, servers int, after time.Duration) {
	d := min(firstWait<<min(fails/servers, 10), mostWait)
	switch {
	case p.has("no-backoff"):
		d = 2 * time.Millisecond
	case after > 0 && fails >= servers && !p.has("impatient"):
		d = after + rand.N(after/2)
	case fails < servers:
		d = rand.N(50 * time.Millisecond)
	case !p.has("no-jitter"):
		d = d/2 + rand.N(d/2)
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// retryAfter is how long a Distributor asks to stay away, 0 if it does not.
func retryAfter(err error) time.Duration {
	for _, d := range status.Convert(err).Details() {
		if m, ok := d.(*slicerv1.RetryAfter); ok {
			return time.Duration(min(max(m.GetAfterMs(), 1), 30_000)) * time.Millisecond
		}
	}
	return 0
}

// useBackups begins to follow Backup Distributors.
func (p *subscriber) useBackups(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopBack != nil || p.has("no-backup") {
		return
	}
	ctx, p.stopBack = context.WithCancel(ctx)
	p.wg.Go(func() { p.follow(ctx, p.cfg.Backups, true) })
}

func (p *subscriber) leaveBackups() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopBack != nil && !p.has("stays-at-backup") {
		p.stopBack()
		p.stopBack = nil
	}
}

// stream is one with a server.
type stream struct {
	p       *subscriber
	servers []string
	at      int
	backup  bool

	sending sync.Mutex
	client  grpc.BidiStreamingClient[slicerv1.WatchRequest, slicerv1.WatchResponse]
	cancel  context.CancelFunc
	silent  *time.Timer // ends the stream
	within  time.Duration
	served  bool
	chunks  []byte

	mu      sync.Mutex
	next    int           // server to go to, -1 for none
	noted   chan struct{} // closed when a status has come
	every   time.Duration
	reports bool
	looking bool
}

func dial(addr string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}))
}

func (s *stream) run(ctx context.Context) error {
	conn, err := dial(s.servers[s.at])
	if err != nil {
		return err
	}
	defer conn.Close()
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, s.cancel = context.WithCancel(ctx)
	defer s.cancel()
	if s.client, err = slicerv1.NewSubscriberServiceClient(conn).Watch(ctx); err != nil {
		return err
	}
	s.within = firstWord
	s.silent = time.AfterFunc(s.within, s.cancel)
	defer s.silent.Stop()
	s.send(&slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Hello{Hello: s.p.hello(slicerv1.Role_ROLE_UNSPECIFIED)}})
	s.every, s.reports, s.noted = time.Second, true, make(chan struct{}, 1)
	if s.p.slicelet || s.p.has("reports") {
		wg.Go(func() { s.report(ctx) })
	}
	for {
		m, err := s.client.Recv()
		if err != nil {
			if s.p.has("drops") {
				s.p.mu.Lock()
				s.p.held = nil
				s.p.mu.Unlock()
			}
			return err
		}
		if !s.p.has("deaf") {
			s.silent.Reset(s.within)
		}
		s.served = true
		if !s.backup {
			s.p.leaveBackups()
		}
		if err := s.take(ctx, &wg, m); err != nil {
			return err
		}
	}
}

func (s *stream) send(m *slicerv1.WatchRequest) {
	s.sending.Lock()
	defer s.sending.Unlock()
	_ = s.client.Send(m) // Recv says why
}

// hello says who is there, and what is held.
func (p *subscriber) hello(role slicerv1.Role) *slicerv1.Hello {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := &slicerv1.Hello{Job: p.cfg.Job, Zone: p.cfg.Zone, ClientId: p.cfg.ClientID, Role: slicerv1.Role_ROLE_CLERK, Compressed: true}
	if !p.has("loses-index") {
		h.ClientIndex = p.index
	}
	if p.held != nil && !p.has("forgets") {
		h.Generation, h.StoreId, h.Checksum = int64(p.held.Generation()), p.held.StoreID(), p.held.Checksum()
	}
	if p.slicelet {
		h.Role, h.ClientId = slicerv1.Role_ROLE_SLICELET, fmt.Sprintf("%s-%x", p.cfg.Task, p.incarnation)
		if p.has("new-incarnation") {
			p.incarnation++
		}
		h.Task = &slicerv1.Task{Name: p.cfg.Task, Address: p.cfg.Address, Zone: p.cfg.Zone, Incarnation: p.incarnation, Weight: 1, State: p.state}
		if p.has("no-incarnation") {
			h.Task.Incarnation = 0
		}
		if h.Report = p.reportLocked(time.Now()); role == 0 {
			h.Report.Load = nil
		}
	}
	if role != slicerv1.Role_ROLE_UNSPECIFIED {
		h.Role, h.Task, h.Report = role, nil, nil
	}
	return h
}

// take takes what a server has sent.
func (s *stream) take(ctx context.Context, wg *sync.WaitGroup, m *slicerv1.WatchResponse) error {
	switch m := m.GetMessage().(type) {
	case *slicerv1.WatchResponse_Chunk:
		if len(s.chunks)+len(m.Chunk.GetData()) > wire.MaxEncodedSize {
			return errors.New("too many chunks")
		}
		s.chunks = append(s.chunks, m.Chunk.GetData()...)
	case *slicerv1.WatchResponse_Trailer:
		s.offered(ctx, wg, m.Trailer)
	case *slicerv1.WatchResponse_Status:
		s.noteStatus(ctx, wg, m.Status)
		if s.p.has("breaks-off") {
			s.chunks = nil
		}
	case nil:
		if s.p.has("dies-of-unknown") {
			panic("a message that is not known")
		}
	}
	return nil
}

// offered takes the assignment that a trailer ends.
func (s *stream) offered(ctx context.Context, wg *sync.WaitGroup, t *slicerv1.Trailer) {
	p := s.p
	p.mu.Lock()
	held := p.held
	p.mu.Unlock()
	a, err := p.decode(s.chunks, t, held)
	s.chunks = nil
	ack := &slicerv1.Ack{}
	switch {
	case err != nil:
		if ack.Refusal = err.Error(); p.has("mute") {
			return
		}
	case p.newer(a, held):
		p.use(a, wg, ctx)
		held = a
	}
	if held != nil {
		ack.Generation = int64(held.Generation())
	}
	s.send(&slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Ack{Ack: ack}})
}

func (p *subscriber) newer(a, held *assignment.Assignment) bool {
	switch {
	case held == nil, p.has("takes-older"):
		return true
	case a.StoreID() != held.StoreID() && !p.has("one-store"):
		return true
	}
	return a.Generation() > held.Generation()
}

// use makes an assignment the one to go by.
func (p *subscriber) use(a *assignment.Assignment, wg *sync.WaitGroup, ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = a
	p.load = load{since: time.Now()} // of other slices
	if p.has("early-ack") {
		p.heldOff = true
		wg.Go(func() {
			select {
			case <-time.After(300 * time.Millisecond):
			case <-ctx.Done():
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			p.heldOff = false
		})
	}
}

// decode puts an assignment together, and proves it.
func (p *subscriber) decode(data []byte, t *slicerv1.Trailer, held *assignment.Assignment) (*assignment.Assignment, error) {
	if uint64(len(data)) != t.GetSize() && !p.has("any-size") {
		return nil, fmt.Errorf("%d bytes, the trailer says %d", len(data), t.GetSize())
	}
	var a *assignment.Assignment
	var err error
	if t.GetWholeSize() != 0 {
		if data, err = p.inflate(data, t.GetWholeSize()); err != nil {
			return nil, err
		}
	}
	if t.GetBase() == 0 {
		a, err = wire.DecodeAssignment(data)
	} else {
		a, err = p.apply(data, held)
	}
	switch {
	case err != nil:
		return nil, err
	case a.Job() != p.cfg.Job && !p.has("any-job"):
		return nil, fmt.Errorf("an assignment of job %q", a.Job())
	case (a.Checksum() != t.GetChecksum() || int64(a.Generation()) != t.GetGeneration()) && !p.has("any-checksum") && !p.has("any-base"):
		return nil, errors.New("the checksum is another one")
	}
	return a, nil
}

func (p *subscriber) inflate(data []byte, size uint64) ([]byte, error) {
	if !p.has("any-whole-size") {
		return wire.Inflate(data, size)
	}
	return io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(data)), wire.MaxEncodedSize))
}

func (p *subscriber) apply(data []byte, held *assignment.Assignment) (*assignment.Assignment, error) {
	d, err := wire.DecodeDelta(data)
	switch {
	case err != nil:
		return nil, err
	case held == nil:
		return nil, errors.New("a delta, and nothing is held")
	case p.has("refuses-deltas"):
		return nil, errors.New("a delta")
	case p.has("any-base"):
		d.Base = held.Generation()
	}
	return assignment.Apply(held, d)
}

// noteStatus takes a status.
func (s *stream) noteStatus(ctx context.Context, wg *sync.WaitGroup, m *slicerv1.Status) {
	p := s.p
	p.mu.Lock()
	if mode := p.status.GetMode(); m.GetMode() == slicerv1.Mode_MODE_UNSPECIFIED {
		m.Mode = mode
	}
	p.status = m
	if m.ClientIndex != nil && m.GetClientIndex() < 1<<24 {
		p.index = m.ClientIndex
	}
	if !p.has("drains-forever") {
		p.condition = nil
	}
	p.condition = append(p.condition, m.GetConditions()[:min(len(m.GetConditions()), 100)]...)
	p.mu.Unlock()
	if ms := m.GetRepeatMs(); ms > 0 && !p.has("deaf") {
		s.within = 3 * time.Duration(min(ms, 3_600_000)) * time.Millisecond
		s.silent.Reset(s.within)
	} else {
		s.silent.Stop()
		s.within = 1 << 62
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reports = m.GetTakesReports() || p.has("reports-to-backup"); m.GetReportIntervalMs() > 0 && !p.has("slow-reports") {
		s.every = time.Duration(min(max(m.GetReportIntervalMs(), 100), 60_000)) * time.Millisecond
	}
	notify(s.noted)
	if m.GetUnacknowledged() && p.slicelet && !s.looking && !p.has("stays-unheard") {
		s.looking = true
		wg.Go(func() { s.look(ctx) })
	}
}

// report sends reports until ctx ends.
func (s *stream) report(ctx context.Context) {
	last := time.Now()
	for {
		s.mu.Lock()
		every, wanted := s.every, s.reports
		s.mu.Unlock()
		timer := time.NewTimer(time.Until(last.Add(every)))
		select {
		case <-s.noted:
		case <-s.p.reportNow:
			s.sendReport(wanted)
		case <-timer.C:
			last = time.Now()
			s.sendReport(wanted)
		case <-ctx.Done():
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

func (s *stream) sendReport(wanted bool) {
	if !wanted {
		return
	}
	s.p.mu.Lock()
	r := s.p.reportLocked(time.Now())
	s.p.mu.Unlock()
	s.send(&slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Report{Report: r}})
}

// look looks for another Distributor that the preferred assigner hears, and has the stream end if
// there is one.
func (s *stream) look(ctx context.Context) {
	for i := 1; ctx.Err() == nil; i++ {
		at := (s.at + i) % len(s.servers)
		if at != s.at && s.heard(ctx, s.servers[at]) {
			s.mu.Lock()
			s.next = at
			s.mu.Unlock()
			s.cancel()
			return
		}
		s.p.pause(ctx, 3, 1, 0)
	}
}

// heard asks a Distributor, as an observer.
func (s *stream) heard(ctx context.Context, addr string) bool {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	conn, err := dial(addr)
	if err != nil {
		return false
	}
	defer conn.Close()
	client, err := slicerv1.NewSubscriberServiceClient(conn).Watch(ctx)
	if err != nil {
		return false
	}
	_ = client.Send(&slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Hello{Hello: s.p.hello(slicerv1.Role_ROLE_OBSERVER)}})
	m, err := client.Recv()
	return err == nil && m.GetStatus().GetTakesReports() && !m.GetStatus().GetUnacknowledged()
}
