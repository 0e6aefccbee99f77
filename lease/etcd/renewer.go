package etcdlease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slicer-project/slicer/assignment/backoff"
	"github.com/slicer-project/slicer/lease"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// answerWithin is how long a keepalive may be without an answer before the stream
	// is given up for one to another member. The one that takes its place compares what each
	// session remembers with etcd, which is much more work than keepalives are. So that an
	// etcd that is slow is not made slower again and again, one that follows directly on one
	// that was given up has twice the patience of that, up to answerAtMost.
	answerWithin = time.Second
	answerAtMost = 8 * time.Second
	// patientFor is for how long one has to last before the next has no more than answerWithin.
	patientFor = time.Minute
	// recallsAtOnce bounds those comparisons.
	recallsAtOnce = 64
	// lookEvery is how often a renewer looks whether its member leads still.
	lookEvery = 5 * time.Second
	// followFor is for how long a member serves that does not lead.
	followFor = time.Minute
	// gather is for how long a keepalive waits for others, to be sent with them: at both
	// ends most of what one costs is the write and the read.
	gather = 10 * time.Millisecond
)

// keepalive is one renewal that a session's holder has asked for.
type keepalive struct {
	ctx    context.Context
	id     clientv3.LeaseID
	sent   time.Time
	answer chan kept // has room for it
}

// kept is the answer to a keepalive.
type kept struct {
	ttl      time.Duration // 0: there is no such lease
	revision int64
}

// renewer sends the keepalives of many sessions over one stream, on a connection of
// its own to the member that leads: any other would pass each on to that one by an HTTP
// request. Those of a few milliseconds go together. Each keepalive that is asked for is sent, none other is, and the
// n-th answer on the stream is the n-th keepalive's: etcd answers them in order. So an
// answer is never credited to a renewal that was asked for after it was sent.
type renewer struct {
	s         *Store
	client    *clientv3.Client
	endpoint  string
	leader    bool
	patience  time.Duration // for an answer; once it runs it is watch's
	recalls   chan struct{} // holds a token for each recall that is under way
	conns     atomic.Int64
	readable  atomic.Int64 // the lowest revision that is known to be readable, 0 for none
	keepalive chan *keepalive
	over      chan struct{} // closed at its end

	mu      sync.Mutex
	waiting []*keepalive  // for answers, in the order in which they were sent
	slowest time.Duration // for how long one has waited, since weighed
	weighed time.Time     // when patience was last looked at
}

// renewers have at most one renewer at a time.
type renewers struct {
	s *Store

	mu      sync.Mutex
	current *renewer // nil between two
	why     error
	changed chan struct{} // closed when current changes
}

func newRenewers(s *Store) *renewers {
	return &renewers{s: s, why: errors.New("no connection yet"), changed: make(chan struct{})}
}

func (r *renewers) set(k *renewer, why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.current, r.why = k, why
	close(r.changed)
	r.changed = make(chan struct{})
}

// get waits for a renewer.
func (r *renewers) get(ctx context.Context) (*renewer, error) {
	for {
		r.mu.Lock()
		k, why, changed := r.current, r.why, r.changed
		r.mu.Unlock()
		if k != nil {
			return k, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: no stream of keepalives: %w", lease.ErrUnavailable, why)
		case <-r.s.ctx.Done():
			return nil, fmt.Errorf("%w: closed", lease.ErrUnavailable)
		}
	}
}

// run has one renewer after the other.
func (r *renewers) run() {
	ctx, pause, patience := r.s.ctx, 20*time.Millisecond, answerWithin
	for ctx.Err() == nil {
		k, stream, end, err := r.s.renewer(ctx, patience)
		began := time.Now()
		if err == nil {
			pause = 20 * time.Millisecond
			r.set(k, nil)
			err = k.run(ctx, stream, end)
			r.set(nil, err)
			k.close()
		}
		patience = next(patience, time.Since(began), err)
		if ctx.Err() == nil {
			r.s.log.Warn("stream of keepalives begins again", "error", err)
			backoff.Sleep(ctx, backoff.Jitter(pause))
			pause = min(2*pause, 500*time.Millisecond)
		}
	}
}

// next is how patient the next renewer is, after one that has lasted so long.
func next(patience, lasted time.Duration, why error) time.Duration {
	switch {
	case lasted > patientFor:
		return answerWithin
	case errors.Is(why, errLate), errors.Is(why, context.DeadlineExceeded), status.Code(why) == codes.DeadlineExceeded:
		return min(2*patience, answerAtMost)
	}
	return patience
}

// errLate: etcd has not answered in time.
var errLate = fmt.Errorf("%w: no answer in time", lease.ErrUnavailable)

// renewer connects to the member that leads, if it is among the endpoints, and else to
// one that knows of a leader. All are asked at once: one that does not answer, perhaps the one
// that led until now, does not keep sessions from being renewed at the others.
func (s *Store) renewer(ctx context.Context, patience time.Duration) (*renewer, etcdserverpb.Lease_LeaseKeepAliveClient, context.CancelFunc, error) {
	k, fallback, err := s.leader(ctx, patience)
	if k == nil && fallback != "" {
		k, _, _, err = s.approach(ctx, fallback, patience)
	}
	if k == nil || err != nil {
		return nil, nil, nil, err
	}
	return k.begin(ctx)
}

// leader connects to the member that leads. Else it returns the first endpoint that knows of a
// leader, and why there is none if there is none.
func (s *Store) leader(ctx context.Context, patience time.Duration) (leader *renewer, fallback string, err error) {
	type answer struct {
		k            *renewer
		leads, knows bool
		err          error
	}
	asking, enough := context.WithCancel(ctx)
	defer enough()
	answers, said := make([]answer, len(s.cfg.Endpoints)), make(chan int, len(s.cfg.Endpoints))
	for i, e := range s.cfg.Endpoints {
		go func() {
			a := &answers[i]
			a.k, a.leads, a.knows, a.err = s.approach(asking, e, patience)
			said <- i
		}()
	}
	for range answers { // which is soon over, once one leads
		switch a := &answers[<-said]; {
		case a.err != nil:
		case a.leads && leader == nil:
			leader = a.k
			enough()
		default:
			a.k.close()
		}
	}
	if leader != nil {
		return leader, "", nil
	}
	err = errors.New("no endpoint")
	for i, a := range answers {
		if err = a.err; err == nil {
			err = fmt.Errorf("%w: no endpoint knows of a leader", lease.ErrUnavailable)
		}
		if a.err == nil && a.knows && fallback == "" {
			fallback = s.cfg.Endpoints[i]
		}
	}
	return nil, fallback, err
}

func newRenewer(s *Store, endpoint string, patience time.Duration) *renewer {
	return &renewer{s: s, endpoint: endpoint, patience: patience, recalls: make(chan struct{}, recallsAtOnce), keepalive: make(chan *keepalive), over: make(chan struct{})}
}

// approach connects to a member, and asks whether it leads, or knows of one that does.
func (s *Store) approach(ctx context.Context, endpoint string, patience time.Duration) (k *renewer, leads, knows bool, err error) {
	k = newRenewer(s, endpoint, patience)
	if k.client, err = connect(s.cfg, []string{endpoint}, &k.conns); err != nil {
		return nil, false, false, err
	}
	if leads, knows, err = k.leads(ctx); err != nil {
		k.close()
	}
	k.leader = leads
	return k, leads, knows, err
}

func (k *renewer) leads(ctx context.Context) (leads, knows bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, k.patience)
	defer cancel()
	status, err := etcdserverpb.NewMaintenanceClient(k.client.ActiveConnection()).Status(ctx, &etcdserverpb.StatusRequest{})
	if err != nil {
		return false, false, fmt.Errorf("%s: %w", k.endpoint, err)
	}
	return status.Leader == status.Header.MemberId, status.Leader != 0, nil
}

func (k *renewer) close() { _ = k.client.Close() }

// begin opens the stream, and makes sure that the etcd which answers on it is the one
// that has told what was told. The first answer, to a keepalive of no lease, says that the
// stream has a connection; if the client has made no other since, what is then looked up comes
// over the same one.
func (k *renewer) begin(ctx context.Context) (*renewer, etcdserverpb.Lease_LeaseKeepAliveClient, context.CancelFunc, error) {
	m := k.s.past.mark()
	live, end := context.WithCancel(clientv3.WithRequireLeader(ctx))
	late := time.AfterFunc(2*k.patience, end)
	stream, err := k.prove(live, m)
	if !late.Stop() {
		err = errors.Join(fmt.Errorf("%w: %s has not begun a stream within %s", errLate, k.endpoint, 2*k.patience), err)
	}
	if err != nil {
		end()
		k.close()
		return nil, nil, nil, err
	}
	return k, stream, end, nil
}

func (k *renewer) prove(ctx context.Context, m mark) (etcdserverpb.Lease_LeaseKeepAliveClient, error) {
	stream, err := etcdserverpb.NewLeaseClient(k.client.ActiveConnection()).LeaseKeepAlive(ctx)
	if err != nil {
		return nil, err
	}
	_ = stream.Send(&etcdserverpb.LeaseKeepAliveRequest{}) // of a stream that has ended Recv knows why
	first, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	if err := k.s.passed(ctx, k.client, m, first.Header.Revision); err != nil {
		return nil, err
	}
	if err := k.s.lookUp(ctx, k.client, m, first.Header.Revision); err != nil {
		return nil, err
	}
	if n := k.conns.Load(); n != 1 {
		return nil, fmt.Errorf("%w: %s was connected to %d times", lease.ErrUnavailable, k.endpoint, n)
	}
	return stream, nil
}

// run sends until the stream ends, its member leads no more, an answer is late, or etcd
// is found to have gone back.
func (k *renewer) run(ctx context.Context, stream etcdserverpb.Lease_LeaseKeepAliveClient, end context.CancelFunc) error {
	defer close(k.over)
	defer end()
	m := k.s.past.mark()
	wentBack := k.s.past.ended(m.era)
	if wentBack == nil {
		return lease.ErrWentBack
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	failed := make(chan error, 3)
	wg.Go(func() { failed <- k.receive(stream); end() })
	wg.Go(func() { failed <- k.watch(stream.Context()); end() })
	var asked []*keepalive
	due := time.NewTimer(gather)
	due.Stop()
	defer due.Stop()
	for {
		select {
		case <-ctx.Done():
			end()
			return ctx.Err()
		case <-wentBack:
			end()
			return lease.ErrWentBack
		case err := <-failed:
			end()
			return err
		case q := <-k.keepalive:
			if asked = append(asked, q); len(asked) == 1 {
				due.Reset(gather)
			}
		case <-due.C:
			if err := k.send(stream, asked); err != nil {
				end()
				return errors.Join(err, <-failed)
			}
			clear(asked)
			asked = asked[:0]
		}
	}
}

// send sends keepalives, but for those that are not counted on any more.
func (k *renewer) send(stream etcdserverpb.Lease_LeaseKeepAliveClient, asked []*keepalive) error {
	for _, q := range asked {
		if q.ctx.Err() != nil {
			continue
		}
		q.sent = time.Now()
		k.mu.Lock()
		k.waiting = append(k.waiting, q)
		k.mu.Unlock()
		if err := stream.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: int64(q.id)}); err != nil {
			return err
		}
	}
	return nil
}

// receive gives each answer to the keepalive that was sent for it.
func (k *renewer) receive(stream etcdserverpb.Lease_LeaseKeepAliveClient) error {
	for {
		resp, err := stream.Recv()
		if err != nil {
			return err
		}
		k.mu.Lock()
		var q *keepalive
		if len(k.waiting) > 0 {
			q = k.waiting[0]
			k.waiting[0] = nil
			k.waiting = k.waiting[1:]
			k.slowest = max(k.slowest, time.Since(q.sent))
		}
		k.mu.Unlock()
		if q == nil || int64(q.id) != resp.ID {
			return fmt.Errorf("%w: answer to a keepalive that was not sent, of lease %x", lease.ErrUnavailable, resp.ID)
		}
		q.answer <- kept{time.Duration(resp.TTL) * time.Second, resp.Header.GetRevision()}
	}
}

// watch returns when the stream is no good any more.
func (k *renewer) watch(ctx context.Context) error {
	tick := time.NewTicker(answerWithin / 4)
	defer tick.Stop()
	k.weighed = time.Now()
	looked, every := time.Now(), lookEvery
	if !k.leader {
		every = followFor
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		if err := k.late(time.Now()); err != nil {
			return err
		}
		if time.Since(looked) < every {
			continue
		}
		if leads, knows, err := k.leads(ctx); err == nil && knows && !leads && len(k.s.cfg.Endpoints) > 1 {
			return fmt.Errorf("%w: %s leads no more", lease.ErrUnavailable, k.endpoint)
		}
		looked = time.Now()
	}
}

// late returns an error if an answer is late. What patience there is but for a time in which
// etcd was slow goes when that is over: a member that vanishes later is left as soon as any.
func (k *renewer) late(now time.Time) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	waited := time.Duration(0)
	if len(k.waiting) > 0 {
		waited = now.Sub(k.waiting[0].sent)
	}
	if k.slowest = max(k.slowest, waited); waited > k.patience {
		return fmt.Errorf("%w: %s has not answered a keepalive within %s", errLate, k.endpoint, k.patience)
	}
	if now.Sub(k.weighed) > patientFor {
		k.patience = min(k.patience, max(answerWithin, 2*k.slowest))
		k.weighed, k.slowest = now, 0
	}
	return nil
}

// renew sends one keepalive and waits for its answer.
func (k *renewer) renew(ctx context.Context, id clientv3.LeaseID) (kept, error) {
	q := &keepalive{ctx: ctx, id: id, answer: make(chan kept, 1)}
	select {
	case k.keepalive <- q:
	case <-ctx.Done():
		return kept{}, ctx.Err()
	case <-k.over:
		return kept{}, k.lost()
	}
	select {
	case a := <-q.answer:
		return a, nil
	case <-ctx.Done():
		return kept{}, ctx.Err()
	case <-k.over:
		return kept{}, k.lost()
	}
}

func (k *renewer) lost() error {
	return fmt.Errorf("%w: the stream of keepalives to %s has ended", lease.ErrUnavailable, k.endpoint)
}
