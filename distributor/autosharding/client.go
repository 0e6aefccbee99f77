package autosharding

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/distributor/internal/handlers"
	"github.com/slicer-project/slicer/distributor/internal/prepared"
	autoshardingv1 "github.com/slicer-project/slicer/proto/autosharding/v1"
)

// reportGap is the least time between two load reports of one client.
const reportGap = time.Second

// What clients are asked to report where tasks measure nothing themselves: of each
// hundredth of the load where it is, by keys in full, every so often.
const (
	loadQuantum  = .01
	loadInterval = 10 * time.Second
	// measuredWithin is how long tasks have to measure something themselves before
	// their clients are asked, and then how often they are looked at.
	measuredWithin = 15 * time.Second
)

// client is one client's stream. It costs the handler's goroutine, which watches
// the feed, and one that receives; a third one sends, and lives only while there
// is something to send, so that a client that does not read can be told to go.
type client struct {
	s      *Service
	in     introduction
	feed   Feed
	stream serverStream
	job    *job

	*handlers.Signals

	mu       sync.Mutex
	progress progress
	refusing bool // the last answer was a refusal
	left     bool

	reportedAt time.Time // of receive alone
	// askAt is when to look whether the client has to be asked for load, zero when it
	// has been; of run alone.
	askAt time.Time
}

func newClient(s *Service, in introduction, feed Feed, stream serverStream) *client {
	return &client{
		s: s, in: in, feed: feed, stream: stream, job: s.enterJob(in.job), Signals: handlers.NewSignals(),
		progress: progress{held: in.held}, askAt: time.Now().Add(measuredWithin),
	}
}

func (c *client) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.job.leave(c.refusing)
	c.left = true
}

// run sends the client what it lacks until its stream ends.
func (c *client) run() error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		now := time.Now()
		a, changed, again, err := c.feed.Newest(now)
		if err != nil {
			return err
		}
		until, err := c.step(now, a)
		if err != nil {
			return err
		}
		until = handlers.Sooner(until, c.askForLoad(now))
		if again > 0 {
			until = handlers.Sooner(until, now.Add(again))
		}
		if until.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(until.Sub(now))
		}
		select {
		case <-changed:
		case <-c.Notified():
		case <-timer.C:
		case <-c.Ended():
			return c.Err()
		case <-c.s.handlers.Done():
			return handlers.ErrClosing
		}
	}
}

// step begins to send the newest assignment, if it is time, and says until when
// the client has to have moved.
func (c *client) step(now time.Time, newest *assignment.Assignment) (until time.Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if newest != nil && c.progress.wants(newest.Generation()) {
		p := c.job.payload(newest, c.s.names)
		c.progress.begin(now, p.a.Generation())
		c.s.handlers.Go(func() { c.send(p) })
	}
	until = c.progress.deadline()
	if !until.IsZero() && !until.After(now) {
		return until, status.Errorf(codes.DeadlineExceeded, "generation %d has been neither read nor acknowledged for %s", c.progress.sent, answerWithin)
	}
	return until, nil
}

// askForLoad asks the client for load, once, if the tasks measure none themselves, and
// returns when to look again, zero for never.
func (c *client) askForLoad(now time.Time) time.Time {
	if c.askAt.IsZero() || now.Before(c.askAt) {
		return c.askAt
	}
	c.askAt = now.Add(measuredWithin)
	if !c.feed.Unmeasured() {
		return c.askAt
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.progress.deadline().IsZero() { // nothing is on its way
		c.askAt = time.Time{}
		c.progress.sending, c.progress.moved = true, now
		c.s.handlers.Go(c.sendConfig)
	}
	return c.askAt
}

func (c *client) sendConfig() {
	err := c.stream.Send(&autoshardingv1.WatchShardingAssignmentResponse{Message: &autoshardingv1.WatchShardingAssignmentResponse_Config{
		Config: &autoshardingv1.LoadReportingConfig{
			LoadQuantumFraction: loadQuantum, MaxLoadBalancingResolutionBytes: keySize,
			LoadReportingInterval: durationpb.New(loadInterval), LoadReportStartThreshold: durationpb.New(loadInterval),
		}}})
	if err != nil {
		c.End(err)
		return
	}
	c.mu.Lock()
	c.progress.finished(time.Now())
	c.mu.Unlock()
	c.Notify()
}

// send sends all of an assignment: there is no way to abandon it half-way.
func (c *client) send(p *payload) {
	err := p.messages.Send(c.stream, func(bytes int) {
		c.job.sent(bytes)
		c.mu.Lock()
		c.progress.took(time.Now())
		c.mu.Unlock()
	})
	if errors.Is(err, prepared.ErrBuild) {
		err = status.Errorf(codes.Internal, "job %q, generation %d: %v", c.in.job, p.a.Generation(), err)
	}
	if err != nil {
		c.End(err)
		return
	}
	c.job.m.sent.Inc()
	c.mu.Lock()
	c.progress.finished(time.Now())
	c.mu.Unlock()
	c.Notify()
}

// receive takes what the client says until its stream ends.
func (c *client) receive() {
	for {
		m, err := c.stream.Recv()
		if err == nil {
			err = c.handle(time.Now(), m)
		}
		if err != nil {
			c.End(handlers.EndOf(err))
			return
		}
	}
}

func (c *client) handle(now time.Time, m *autoshardingv1.WatchShardingAssignmentRequest) error {
	switch {
	case m.GetAssignmentAck() != nil:
		return c.ack(now, m.GetAssignmentAck())
	case m.GetLoadReport() != nil:
		return c.report(now, m.GetLoadReport())
	case m.GetInitialClientConfig() != nil:
		return status.Error(codes.InvalidArgument, "initial_client_config: said before")
	}
	return status.Error(codes.InvalidArgument, "a message is neither a load_report nor an assignment_ack")
}

func (c *client) ack(now time.Time, a *autoshardingv1.AssignmentAck) error {
	if err := checkAck(a); err != nil {
		return err
	}
	g := assignment.Generation(a.GetGeneration())
	c.mu.Lock()
	ok := c.progress.answered(g, a.GetAccepted())
	sent, was, left := c.progress.sent, c.refusing, c.left
	if ok && !left {
		c.refusing = !a.GetAccepted()
	}
	c.mu.Unlock()
	switch {
	case left:
		return nil // the stream has ended
	case !ok:
		return invalid("assignment_ack", &assignment.FieldError{
			Field: "generation", Value: int64(g), Allowed: fmt.Sprintf("that of the assignment sent last (%d), once", sent)})
	case a.GetAccepted():
		c.job.accepted(now, was, a.GetErrorMessage())
		c.feed.Holds(now, g)
	default:
		c.job.refused(now, was, c.in.name, g, a.GetErrorMessage())
		c.feed.Refuses(now)
	}
	c.Notify()
	return nil
}

func (c *client) report(now time.Time, m *autoshardingv1.LoadReport) error {
	if !c.reportedAt.IsZero() && now.Sub(c.reportedAt) < reportGap {
		c.job.reported(reportEarly)
		return nil
	}
	c.reportedAt = now
	r, err := checkReport(m, c.feed.Metric())
	switch {
	case err != nil:
		return err
	case r == nil:
		c.job.reported(reportIgnored)
	default:
		c.job.reported(reportTaken)
		c.feed.Report(now, r)
	}
	return nil
}
