package ratelimit

import (
	"context"
	"errors"
	"hash/maphash"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/clerkgrpc"
	"github.com/slicer-project/slicer/test/examples/ratelimit/quota"
	"github.com/slicer-project/slicer/test/examples/ratelimit/wire"
)

const (
	// DefaultFrontends and DefaultHold are what a ClientConfig that does not say stands for.
	DefaultFrontends = 20
	DefaultHold      = 15 * time.Second
	slots            = 8  // of a wheel of ticks
	inFlight         = 32 // calls of a client
)

// ErrFull is the error of Allow when a client has ClientConfig.MaxLimits limits in use.
var ErrFull = errors.New("too many limits are in use")

// ClientConfig is what a Client needs.
type ClientConfig struct {
	// Clerk says which servers own which limits. It is the caller's, which closes it afterwards.
	Clerk *clerk.Clerk
	// DialOptions are for connections to servers, with transport credentials.
	DialOptions []grpc.DialOption
	// Frontends is about how many clients there are, 1 to 10000; 0 stands for
	// DefaultFrontends. A client that has not heard of a limit's owner lets in one part in so many.
	Frontends int
	// Hold is for how long a client goes on with its part of a limit when it hears nothing
	// from owners, 1 s to 10 min; 0 stands for DefaultHold. It should be above the time in
	// which a dead server is replaced, the job's heartbeat_timeout and some seconds.
	Hold time.Duration
	// MaxLimits is how many limits may be in use at once, 1 to 1e8; 0 stands for
	// DefaultMaxLimits.
	MaxLimits int
	// Logger may be nil: then it is slog.Default().
	Logger *slog.Logger
}

// Client decides about requests. All methods are safe for concurrent use.
type Client struct {
	cfg     ClientConfig
	start   time.Time
	seed    maphash.Seed
	session uint64
	conn    *grpc.ClientConn
	servers wire.LimiterClient
	parts   [parts]clientPart
	wheel   wheel
	calls   chan struct{} // one for each call
	cancel  context.CancelFunc
	close   func() error
	wg      sync.WaitGroup // the loop
	sending sync.WaitGroup // calls
}

type clientPart struct {
	mu     sync.RWMutex
	limits map[string]*entry
}

// entry is a limit in use.
type entry struct {
	key string

	mu    sync.Mutex
	share quota.Share
	gone  bool // another has taken its place, or will
	// refusals is how often its report was refused in turn. It is the business of what has the
	// entry out of the wheel.
	refusals int
}

// wheel is all limits in use, by the tick at which their reports are due, but for those whose
// reports are on their way.
type wheel struct {
	mu    sync.Mutex
	at    int
	slots [slots][]*entry
}

// add makes a limit due after some ticks, 1 to slots-1.
func (w *wheel) add(e *entry, ticks int) {
	w.mu.Lock()
	i := (w.at + ticks) % slots
	w.slots[i] = append(w.slots[i], e)
	w.mu.Unlock()
}

// next returns what is due a tick later than before. It gives into's memory back.
func (w *wheel) next(into []*entry) (due []*entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at = (w.at + 1) % slots
	due = w.slots[w.at]
	clear(into)
	w.slots[w.at] = into[:0]
	return due
}

// NewClient makes a Client. Errors name the field that is not allowed
// (*assignment.FieldError).
func NewClient(cfg ClientConfig) (*Client, error) {
	for _, d := range []struct {
		value       *int
		standsFor   int
		field, want string
		most        int
	}{
		{&cfg.Frontends, DefaultFrontends, "Frontends", "1 to 10000", 10000},
		{&cfg.MaxLimits, DefaultMaxLimits, "MaxLimits", "1 to 1e8", 1e8},
	} {
		if *d.value == 0 {
			*d.value = d.standsFor
		}
		if *d.value < 1 || *d.value > d.most {
			return nil, &assignment.FieldError{Field: d.field, Value: *d.value, Allowed: d.want}
		}
	}
	if cfg.Hold == 0 {
		cfg.Hold = DefaultHold
	}
	if cfg.Hold < time.Second || cfg.Hold > 10*time.Minute {
		return nil, &assignment.FieldError{Field: "Hold", Value: cfg.Hold, Allowed: "1s to 10m"}
	}
	if cfg.Clerk == nil {
		return nil, &assignment.FieldError{Field: "Clerk", Value: nil, Allowed: "a clerk"}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	// A batch is sent to the owner of one of its keys, and says itself which keys it has.
	routed := clerkgrpc.DialOptions(clerkgrpc.Config{Shared: cfg.Clerk, SendKey: "-"})
	conn, err := grpc.NewClient(clerkgrpc.Scheme+":///"+cfg.Clerk.Job(), append(routed, cfg.DialOptions...)...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &Client{cfg: cfg, start: time.Now(), seed: maphash.MakeSeed(), session: rand.Uint64(), conn: conn,
		servers: wire.NewLimiterClient(conn), calls: make(chan struct{}, inFlight), cancel: cancel}
	for i := range c.parts {
		c.parts[i].limits = make(map[string]*entry)
	}
	c.close = sync.OnceValue(c.end)
	c.wg.Go(func() { c.run(ctx) })
	return c, nil
}

// Close gives back what has been lent to the client, for which it waits at most a second,
// and ends it. Allow may be called afterwards, and decides by what there was. Closing twice is
// as good as once.
func (c *Client) Close() error { return c.close() }

func (c *Client) end() error {
	c.cancel()
	c.wg.Wait()
	c.sending.Wait()
	var all []*entry
	for i := range c.parts {
		p := &c.parts[i]
		p.mu.RLock()
		for _, e := range p.limits {
			all = append(all, e)
		}
		p.mu.RUnlock()
	}
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	c.send(ctx, all, (*quota.Share).Return)
	c.sending.Wait()
	return c.conn.Close()
}

// Limits is how many limits are in use here.
func (c *Client) Limits() (n int) {
	for i := range c.parts {
		p := &c.parts[i]
		p.mu.RLock()
		n += len(p.limits)
		p.mu.RUnlock()
	}
	return n
}

func (c *Client) now() time.Duration { return time.Since(c.start) }

func (c *Client) part(key string) *clientPart {
	return &c.parts[maphash.String(c.seed, key)%parts]
}

// Allow decides whether something that counts for n, 1 as a rule, is within the limit of a
// key, and takes it off if so. It asks nothing of others, takes well under a microsecond,
// and allocates only when the key has not been in use. The error is one of a key, limit or
// n that is not allowed (*assignment.FieldError), n being 1 to the limit's burst, or ErrFull.
func (c *Client) Allow(key string, l quota.Limit, n int) (ok bool, err error) {
	if n < 1 || float64(n) > l.Burst {
		return false, checkCost(l, n)
	}
	p := c.part(key)
	now := c.now()
	for {
		p.mu.RLock()
		e := p.limits[key]
		p.mu.RUnlock()
		if e == nil {
			if e, err = c.use(p, key, l); err != nil {
				return false, err
			}
		}
		e.mu.Lock()
		if e.gone {
			e.mu.Unlock()
			continue
		}
		if e.share.Limit() != l {
			if err := l.Validate(); err != nil {
				e.mu.Unlock()
				return false, err
			}
			e.share.SetLimit(now, l)
		}
		ok = e.share.Allow(now, uint64(n))
		e.mu.Unlock()
		return ok, nil
	}
}

func checkCost(l quota.Limit, n int) error {
	if err := l.Validate(); err != nil {
		return err
	}
	return &assignment.FieldError{Field: "n", Value: n, Allowed: "1 to the limit's burst"}
}

// use makes an entry for a key, unless there is one by now.
func (c *Client) use(p *clientPart, key string, l quota.Limit) (*entry, error) {
	if err := errors.Join(assignment.CheckKey(key), l.Validate()); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.limits[key]; e != nil {
		return e, nil
	}
	if len(p.limits) >= (c.cfg.MaxLimits+parts-1)/parts {
		return nil, ErrFull
	}
	e := &entry{key: key, share: quota.NewShare(c.now(), l, c.cfg.Frontends, c.cfg.Hold)}
	p.limits[key] = e
	c.wheel.add(e, 1)
	return e, nil
}

// run sends reports until the context ends.
func (c *Client) run(ctx context.Context) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	var due []*entry
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		due = c.wheel.next(due)
		send := due[:0]
		for _, e := range due {
			if c.next(e) {
				send = append(send, e)
			}
		}
		c.send(ctx, send, (*quota.Share).Report)
	}
}

// next does what is due for a limit, and reports whether to send its report.
func (c *Client) next(e *entry) (send bool) {
	e.mu.Lock()
	step := e.share.Next(c.now())
	if step == quota.Forget {
		e.gone = true
	}
	e.mu.Unlock()
	switch step {
	case quota.Send:
		return true
	case quota.Wait:
		c.wheel.add(e, interval())
	case quota.Forget:
		p := c.part(e.key)
		p.mu.Lock()
		delete(p.limits, e.key)
		p.mu.Unlock()
	}
	return false
}

// interval is a quota.Interval in ticks, more or less, so that reports spread over time.
func interval() int { return int(quota.Interval/tick) - 1 + rand.IntN(3) }

// send sends the reports of limits, to each owner those of its limits.
func (c *Client) send(ctx context.Context, entries []*entry, report func(*quota.Share, time.Duration) quota.Report) {
	if len(entries) == 0 {
		return
	}
	byKey := make(map[string]*entry, len(entries))
	keys := make([]string, len(entries))
	for i, e := range entries {
		keys[i], byKey[e.key] = e.key, e
	}
	groups := c.cfg.Clerk.Group(keys)
	for _, key := range groups.Unowned {
		c.wheel.add(byKey[key], interval())
	}
	for _, g := range groups.ByTask {
		for keys := g.Keys; len(keys) > 0; {
			n := min(len(keys), batch)
			some := make([]*entry, n)
			for i, key := range keys[:n] {
				some[i] = byKey[key]
			}
			keys = keys[n:]
			select {
			case c.calls <- struct{}{}:
			default: // servers are slow: later
				c.again(some, nil)
				continue
			}
			c.sending.Go(func() {
				defer func() { <-c.calls }()
				c.call(ctx, some, report)
			})
		}
	}
}

// call sends one batch.
func (c *Client) call(ctx context.Context, entries []*entry, report func(*quota.Share, time.Duration) quota.Report) {
	q := &wire.ReportRequest{Session: c.session, Reports: make([]*wire.Report, len(entries))}
	reports := make([]wire.Report, len(entries))
	for i, e := range entries {
		e.mu.Lock()
		r := report(&e.share, c.now())
		e.mu.Unlock()
		w := &reports[i]
		w.Key, w.Rate, w.Burst, w.Demand = e.key, r.Limit.Rate, r.Limit.Burst, r.Demand
		w.Lent, w.Tokens, w.Total, w.Fresh = r.Rate, r.Tokens, r.Total, r.Fresh
		q.Reports[i] = w
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	a, err := c.servers.Report(clerk.WithKey(ctx, entries[0].key), q)
	if err != nil || len(a.Answers) != len(entries) {
		c.cfg.Logger.Debug("no answer to reports", "reports", len(entries), "error", err)
		a = nil
	}
	c.again(entries, a)
}

// again takes answers, if there are any, and makes the limits due again.
func (c *Client) again(entries []*entry, a *wire.ReportResponse) {
	for i, e := range entries {
		ticks := interval()
		if a != nil {
			w := a.Answers[i]
			answer := quota.Answer{Rate: w.GetRate(), Tokens: w.GetTokens(), Cap: w.GetCap(), Soon: w.GetSoon(), Shared: w.GetShared()}
			switch {
			case w.GetRefused(): // the key has moved, or is about to come
				ticks = min(1<<min(e.refusals, 8), ticks)
				e.refusals++
			case answer.Valid():
				e.refusals = 0
				e.mu.Lock()
				e.share.Answer(c.now(), answer)
				e.mu.Unlock()
				if answer.Soon {
					ticks = 1
				}
			}
		}
		c.wheel.add(e, ticks)
	}
}
