package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/cmd/internal/screen"
)

const (
	jobName = "demo"
	// setUpLimit bounds the time until every server owns something.
	setUpLimit = 30 * time.Second
	// firstWindow is for how long the first imbalance is measured, if no new
	// assignment comes before.
	firstWindow = 2 * time.Second
)

// addresses are where the control plane serves, and the URL of the page, empty if there is
// none.
type addresses struct{ distributor, backup, page string }

// demo is a run from its set-up to its end.
type demo struct {
	cfg   Config
	out   output
	plane *controlPlane
	rng   *rand.Rand
	meter *meter
	watch *observer

	clients []*client
	load    source
	zipf    *zipf // nil when a trace is replayed
	custom  bool
	began   time.Time
	stalled atomic.Int64 // nanoseconds, by which the load lags behind

	mu          sync.Mutex
	servers     map[string]*server
	used        int // names given out
	events      []event
	steps       sync.WaitGroup
	drainErrors int64
	killErrors  int64
	overlaps    overlaps
}

// Run carries out a demo and reports to w; size, unless nil, tells the size of
// the terminal that w is. A run that came to its end but failed
// returns its summary and the summary's error.
func Run(ctx context.Context, cfg Config, w io.Writer, size func() (width, height int)) (*Summary, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	var out output = &plainOutput{w: w}
	switch {
	case cfg.JSON:
		out = &jsonOutput{w}
	case size != nil:
		out = &screenOutput{on: screen.Screen{W: w, Size: size}}
	}
	return newDemo(cfg, out).run(ctx)
}

func newDemo(cfg Config, out output) *demo {
	return &demo{cfg: cfg, out: out, meter: newMeter(), servers: map[string]*server{}, rng: rand.New(rand.NewPCG(cfg.Seed, 1))}
}

func (d *demo) run(ctx context.Context) (*Summary, error) {
	defer d.close()
	if err := d.setUp(ctx); err != nil {
		if ctx.Err() != nil {
			err = errInterrupted
		}
		return nil, err
	}
	return d.perform(ctx)
}

// setUp starts everything and waits until each server owns slices.
func (d *demo) setUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, setUpLimit)
	defer cancel()
	if err := d.openLoad(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "slicer-demo-")
	if err != nil {
		return err
	}
	if d.plane, err = startControlPlane(dir, d.cfg.Listen, d.cfg.HTTP); err != nil {
		os.RemoveAll(dir)
		return err
	}
	if _, err := d.plane.db.PutJob(ctx, jobConfig(&d.cfg, d.custom), store.NoVersion); err != nil {
		return err
	}
	if d.watch, err = newObserver(jobName, d.plane.addrs); err != nil {
		return err
	}
	for range d.cfg.Tasks {
		if _, err := d.addServer(); err != nil {
			return err
		}
	}
	for i := range d.cfg.Clients {
		c, err := newClient(fmt.Sprintf("client-%d", i), jobName, d.plane.addrs, d.meter, &d.cfg)
		if err != nil {
			return err
		}
		d.clients = append(d.clients, c)
	}
	return d.settle(ctx)
}

func (d *demo) openLoad() error {
	if d.cfg.Trace == "" {
		exponent := zipfExponent
		if d.cfg.Consistent {
			exponent = zipfConsistent
		}
		d.zipf = newZipf(d.cfg.QPS, d.cfg.Seed, exponent)
		d.zipf.mixed = d.cfg.Overload
		d.load = d.zipf
		return nil
	}
	info, err := scanTrace(d.cfg.Trace)
	if err != nil {
		return err
	}
	if info.malformed.Count > 0 && d.cfg.Warn != nil {
		d.cfg.Warn(info.malformed.String())
	}
	var speed float64
	if d.cfg.Duration, speed, err = info.plan(&d.cfg); err != nil {
		return err
	}
	d.custom = info.weighted
	d.load, err = newReplay(d.cfg.Trace, info, d.cfg.Duration, speed)
	return err
}

// settle waits until every server owns slices and all clients know.
func (d *demo) settle(ctx context.Context) error {
	for {
		a, changed := d.watch.now()
		if all := running(a); len(all) == d.cfg.Tasks && ownEvery(a, all) {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("not every server got slices within %s: %w", setUpLimit, d.watch.trouble())
		}
	}
	for _, c := range d.clients {
		if err := c.clerk.Ready(ctx); err != nil {
			return fmt.Errorf("a client has no assignment: %w", err)
		}
	}
	return d.believing(ctx)
}

func ownEvery(a *assignment.Assignment, tasks []string) bool {
	for _, t := range tasks {
		if n, _ := owned(a, t); n == 0 {
			return false
		}
	}
	return true
}

func (d *demo) addServer() (*server, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	name := fmt.Sprintf("cache-%d", d.used)
	s, err := startServer(name, jobName, d.plane.addrs, d.custom, &d.cfg)
	if err != nil {
		return nil, err
	}
	d.used++
	d.servers[name] = s
	return s, nil
}

// perform runs load, script and view to the end of the run.
func (d *demo) perform(ctx context.Context) (*Summary, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	d.out.begin(&d.cfg, d.plane.addrs)
	d.watch.mark()
	d.began = time.Now()

	first := make(chan float64, 1)
	go func() { first <- d.measureFirst(ctx) }()
	loaded := make(chan error, 1)
	go func() { loaded <- d.pace(ctx, cancel) }()
	looked := make(chan struct{})
	go func() { defer close(looked); d.lookOut(ctx) }()
	scripted := make(chan struct{})
	go func() { defer close(scripted); d.follow(ctx) }()

	last, err := d.view(ctx)
	cancel(err)
	<-scripted
	<-looked
	d.steps.Wait()
	if perr := <-loaded; err == nil {
		err = perr
	}
	imbalance := <-first
	for _, c := range d.clients {
		c.calls.Wait()
	}
	if err == nil && !errors.Is(context.Cause(ctx), errOver) {
		err = errInterrupted
	}
	if err != nil {
		return nil, err
	}
	s := d.summary(imbalance, last)
	if err := d.out.end(s); err != nil {
		return s, err
	}
	return s, s.Err()
}

// errOver is why a run that has gone to its end has ended, errInterrupted what is
// said of any other.
var (
	errOver        = errors.New("the run is over")
	errInterrupted = errors.New("interrupted")
)

// maxBehind is how late a call may be made.
const maxBehind = 50 * time.Millisecond

// pace makes the calls, each when it is due, and ends the run after its duration. When
// the process has not had the CPU for a while, the load goes on from there instead of
// making up for it in one burst, which would measure the machine, and the run takes as
// much longer; how long that was is reported.
func (d *demo) pace(ctx context.Context, cancel context.CancelCauseFunc) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for n := 0; ; n++ {
		a, ok, err := d.load.next()
		over := err != nil || !ok || a.at >= d.cfg.Duration
		if over {
			a.at = d.cfg.Duration
		}
		wait := time.Until(d.began.Add(a.at + time.Duration(d.stalled.Load())))
		switch {
		case wait > 0:
			timer.Reset(wait)
			select {
			case <-timer.C:
			case <-ctx.Done():
				return err
			}
		case ctx.Err() != nil:
			return err
		case -wait > maxBehind:
			d.stalled.Add(int64(-wait))
		}
		if over {
			cancel(errOver)
			return err
		}
		d.clients[n%len(d.clients)].start(a)
	}
}

// measureFirst is the imbalance under the assignment that the load met.
func (d *demo) measureFirst(ctx context.Context) float64 {
	a, changed := d.watch.now()
	timer := time.NewTimer(firstWindow)
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	case <-ctx.Done():
	}
	return d.meter.snapshot().imbalance(running(a))
}

func (d *demo) close() {
	for _, c := range d.clients {
		c.Close()
	}
	d.mu.Lock()
	servers := d.servers
	d.servers = nil
	d.mu.Unlock()
	var stops sync.WaitGroup
	for _, s := range servers {
		stops.Go(s.stop)
	}
	stops.Wait()
	if d.watch != nil {
		d.watch.Close()
	}
	if t, ok := d.load.(*replay); ok {
		t.Close()
	}
	if d.plane != nil {
		d.plane.Close()
	}
}
