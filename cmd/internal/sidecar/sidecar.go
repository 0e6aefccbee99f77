// Package sidecar makes a server that knows nothing of Slicer a task of a job: a reverse proxy
// beside it, which is the task's slicelet.
//
// Clients reach the server by the sidecar's address. The sidecar counts requests by their keys,
// refuses or passes on those whose keys are another task's, tells the server which keys come and
// go, drains, and takes no keys while the server does not answer. What it does with a request are
// the handlers of packages slicelethttp and sliceletgrpc.
//
// Each time that the server has been found dead the sidecar goes on as a new incarnation of the
// task, as what the server kept in memory is gone: it is starting, owns nothing, and no handle of
// before is valid.
package sidecar

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/credentials"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/clerk/clerkgrpc"
	"github.com/slicer-project/slicer/clerk/front"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/slicelet/slicelethttp"
)

// Misrouted says what becomes of requests for keys that the task does not own. In consistent mode
// they are refused where they are not forwarded.
type Misrouted string

// The kinds of Misrouted.
const (
	Serve   Misrouted = "serve"   // in affinity mode, as slicelethttp does
	Refuse  Misrouted = "refuse"  // the client asks the owner
	Forward Misrouted = "forward" // to the owner's sidecar
)

// Config says what is beside which server.
type Config struct {
	// Slicelet is the task's, but for Starting. Its address is the sidecar's.
	Slicelet slicelet.Config
	// Upstream is host:port of the server, which H2C says to speak HTTP/2 without TLS, and GRPC
	// gRPC. MaxMessage bounds gRPC's messages, bytes.
	Upstream   string
	H2C, GRPC  bool
	MaxMessage int
	// Health is the path that the server answers with a code of 200 to 399 while it can serve,
	// empty for any server that takes connections. It is asked every HealthEvery.
	Health      string
	HealthEvery time.Duration
	// Misrouted is Serve if it is empty. TLS makes the config of connections to other sidecars,
	// nil for those without TLS.
	Misrouted Misrouted
	TLS       func() *tls.Config
	// EndMoved ends WebSockets, server-sent events and gRPC streams whose keys have moved.
	EndMoved bool
	// UnderWay is how many requests there are at the server at once at most, 0 for any, whatever the
	// job's admission is: WebSockets and streams to their end, and not those for Health and Webhook.
	// One whose client is gone counts no more, whatever the server still does about it. Others wait,
	// mostWaiting of them, or there is no room for them.
	UnderWay int
	// Webhook is the URL that changes of ownership are sent to; empty for none.
	Webhook string
	// Credentials are those of the gRPC server.
	Credentials credentials.TransportCredentials
	Logger      *slog.Logger
	Registerer  prometheus.Registerer
}

// Sidecar is one. All methods are safe for concurrent use.
type Sidecar struct {
	cfg     Config
	log     *slog.Logger
	paths   paths
	probe   probe
	tell    teller
	metrics *metrics

	life   atomic.Pointer[life] // never nil
	keys   atomic.Pointer[front.Keys]
	slots  *slots                // nil if any number may be under way
	why    atomic.Pointer[error] // the server does not answer
	notify chan struct{}         // of capacity 1: the server may be dead

	door *door // of gRPC

	stop   context.CancelFunc // of watch
	wg     sync.WaitGroup
	drain  sync.Once
	ending error
	over   chan struct{} // closed when it has drained
}

// life is an incarnation of the task.
type life struct {
	slicelet *slicelet.Slicelet
	// up: the server answers.
	up      atomic.Bool
	metrics *registrations
	handler http.Handler // of HTTP
	grpc    *grpcServer  // of gRPC
}

// New starts one. It does not wait for the server.
func New(cfg Config) (*Sidecar, error) {
	s := &Sidecar{cfg: cfg, log: cfg.Logger, slots: newSlots(cfg.UnderWay), notify: make(chan struct{}, 1), over: make(chan struct{})}
	s.probe.init(&s.cfg)
	s.tell.init(s)
	why := errors.New("not asked yet")
	s.why.Store(&why)
	var err error
	if s.metrics, err = newMetrics(cfg.Registerer, s); err != nil {
		return nil, err
	}
	if cfg.GRPC {
		s.door = newDoor()
		s.paths.relay, err = clerkgrpc.NewRelay(cfg.Upstream, cfg.MaxMessage)
	} else {
		s.paths.open(s)
	}
	var l *life
	if err == nil {
		l, err = s.begin()
	}
	if err != nil {
		s.metrics.forget()
		return nil, errors.Join(err, s.paths.close())
	}
	s.life.Store(l)
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.wg.Go(func() { s.watch(ctx) })
	return s, nil
}

// begin begins an incarnation.
func (s *Sidecar) begin() (*life, error) {
	cfg := s.cfg.Slicelet
	cfg.Starting = true
	cfg.WholeAssignment = true // requests are forwarded to the owners of their keys
	sl, err := slicelet.New(cfg)
	if err != nil {
		return nil, err
	}
	l := &life{slicelet: sl, metrics: &registrations{to: s.cfg.Registerer}}
	if s.cfg.GRPC {
		err = s.serveGRPC(l)
	} else {
		l.handler, err = slicelethttp.Handler(sl, s.inner(l), slicelethttp.Config{EndMoved: s.ends(l), Registerer: l.metrics})
	}
	if err != nil {
		l.metrics.forget()
		return nil, errors.Join(err, sl.Close())
	}
	sl.Listen(s.tell.begin(l))
	return l, nil
}

// end ends an incarnation whose server is dead.
func (s *Sidecar) end(l *life) error {
	s.tell.end(l)
	err := l.slicelet.Close()
	if l.grpc != nil {
		l.grpc.stop()
	}
	l.metrics.forget()
	return err
}

// watch looks after the server until ctx ends.
func (s *Sidecar) watch(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	failures := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.notify:
		case <-timer.C:
		}
		err := s.probe.ask(ctx)
		if ctx.Err() != nil {
			return
		}
		timer.Reset(s.cfg.HealthEvery)
		l := s.life.Load()
		switch {
		case err == nil:
			failures = 0
			s.why.Store(nil)
			if !l.up.Swap(true) {
				s.log.Info("the server answers", "upstream", s.cfg.Upstream)
				if l.grpc != nil {
					s.paths.relay.Connect()
					l.grpc.started()
				}
				l.slicelet.Started()
			}
		case !l.up.Load():
			s.why.Store(&err)
		default:
			if failures++; failures < mostFailures && !refuses(err) {
				s.log.Debug("the server does not answer", "upstream", s.cfg.Upstream, "error", err)
				continue
			}
			failures = 0
			s.log.Warn("the server is dead: the task gives its keys up", "upstream", s.cfg.Upstream, "error", err)
			s.why.Store(&err)
			s.metrics.deaths.Inc()
			l.up.Store(false)
			s.replace(ctx, l)
		}
	}
}

// mostFailures is how many probes in a row may fail, but for those that are refused, before the
// server is taken for dead.
const mostFailures = 3

// replace ends an incarnation and begins the next one. It returns when that is there, or ctx ends.
func (s *Sidecar) replace(ctx context.Context, l *life) {
	if err := s.end(l); err != nil {
		s.log.Warn("closing the slicelet", "error", err)
	}
	for ctx.Err() == nil {
		next, err := s.begin()
		if err == nil {
			s.life.Store(next)
			return
		}
		s.log.Error("the task does not begin anew", "error", err)
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}

// fit says why a request is not for the server: that is dead, or the task does not own the key any
// more where only the owner serves it.
func (s *Sidecar) fit(l *life, h slicelet.Handle, keyed bool) (dead, lost bool) {
	onlyOwner := s.cfg.Misrouted == Refuse || l.slicelet.Mode() == assignment.Consistent
	return !l.up.Load(), keyed && onlyOwner && !h.AssignedContinuously()
}

// suspect has the server be looked at.
func (s *Sidecar) suspect() {
	select {
	case s.notify <- struct{}{}:
	default:
	}
}

// SetKeys has it find the keys of requests that do not say theirs.
func (s *Sidecar) SetKeys(k *front.Keys) { s.keys.Store(k) }

// Ready says why the server cannot serve as a task, if so.
func (s *Sidecar) Ready() error {
	l := s.life.Load()
	switch why := s.why.Load(); {
	case why != nil:
		return fmt.Errorf("the server at %s does not answer: %w", s.cfg.Upstream, *why)
	case l.slicelet.Draining():
		return errors.New("the task drains")
	case l.slicelet.Assignment() == nil:
		return fmt.Errorf("job %q has no assignment yet", s.cfg.Slicelet.Job)
	}
	return nil
}

// Drain ends it without losing a request: the keys go to others, server, which serves it, takes no
// more requests and ends those that it has, and the slicelet closes. server is nil for gRPC. It
// returns when that is done, or the first call's ctx has ended, with how that went.
func (s *Sidecar) Drain(ctx context.Context, server *http.Server) error {
	s.drain.Do(func() {
		defer close(s.over)
		s.stop()
		s.wg.Wait()
		l := s.life.Load()
		if s.cfg.GRPC {
			s.ending = s.drainGRPC(ctx, l)
		} else {
			s.ending = slicelethttp.Drain(ctx, l.slicelet, server)
		}
		s.tell.end(l)
		s.tell.close()
		l.metrics.forget()
		s.metrics.forget()
		s.ending = errors.Join(s.ending, s.paths.close())
	})
	<-s.over
	return s.ending
}

// Task is the task's name.
func (s *Sidecar) Task() string { return s.life.Load().slicelet.Task() }

// Drained is closed when it has drained.
func (s *Sidecar) Drained() <-chan struct{} { return s.over }

// registrations are what an incarnation has registered.
type registrations struct {
	to prometheus.Registerer // nil for none

	mu  sync.Mutex
	all []prometheus.Collector
}

// Register is prometheus.Registerer's.
func (r *registrations) Register(c prometheus.Collector) error {
	if r.to == nil {
		return nil
	}
	err := r.to.Register(c)
	if err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.all = append(r.all, c)
	}
	return err
}

// MustRegister is prometheus.Registerer's.
func (r *registrations) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		if err := r.Register(c); err != nil {
			panic(err)
		}
	}
}

// Unregister is prometheus.Registerer's.
func (r *registrations) Unregister(c prometheus.Collector) bool {
	return r.to != nil && r.to.Unregister(c)
}

// forget takes all of it back.
func (r *registrations) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.all {
		r.to.Unregister(c)
	}
	r.all = nil
}

// metrics are the sidecar's own.
type metrics struct {
	registrations
	deaths    prometheus.Counter
	forwarded prometheus.Counter
	told      *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer, s *Sidecar) (*metrics, error) {
	m := &metrics{
		registrations: registrations{to: reg},
		deaths: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "slicer_sidecar_upstream_deaths_total", Help: "Times that the server was found dead, upon which the task gave its keys up.",
		}),
		forwarded: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "slicer_sidecar_forwarded_total", Help: "Requests for other tasks' keys that were passed on to their owners.",
		}),
		told: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slicer_sidecar_webhooks_total", Help: "Changes of ownership that were sent to the webhook, by whether it took them: told, refused, or failed, which are sent again.",
		}, []string{"result"}),
	}
	up := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "slicer_sidecar_upstream_up", Help: "1 while the server answers.",
	}, func() float64 {
		if l := s.life.Load(); l != nil && l.up.Load() {
			return 1
		}
		return 0
	})
	for _, c := range []prometheus.Collector{up, m.deaths, m.forwarded, m.told} {
		if err := m.Register(c); err != nil {
			m.forget()
			return nil, err
		}
	}
	return m, nil
}
