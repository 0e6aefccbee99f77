package proxyd

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/clerk/front"
	"github.com/slicer-project/slicer/cmd/internal/run"
	"github.com/slicer-project/slicer/cmd/internal/sidecar"
	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/lease/remote"
	"github.com/slicer-project/slicer/slicelet"
)

// sidecarFlags are those of a task's sidecar.
type sidecarFlags struct {
	all                          *flags // of the program
	upstream, job, task, health  string
	misrouted, webhook           string
	leases                       []string
	every, drainLimit, leaseTime time.Duration
	endMoved, believe            bool
	underWay                     int
	weight                       float64
}

// h2c is what --upstream begins with for a server of HTTP/2 without TLS.
const h2c = "h2c://"

func (f *sidecarFlags) bind(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.upstream, "upstream", "", "`[h2c://]host:port` of a server that this is the sidecar of: it takes HTTP/1.1, and gRPC by HTTP/2 without TLS, or with h2c:// all by HTTP/2 without TLS; --config may be left out then")
	fs.StringVar(&f.task, "task", "", "`name` of the task that the server is, with --upstream: stable across restarts (default: the environment's SLICER_TASK, else POD_NAME)")
	fs.StringVar(&f.job, "job", "", "`name` of the job that the server serves, with --upstream (default: that of the rules in --config, if they name one)")
	fs.StringVar(&f.all.Advertise, "advertise", "", "`host:port` at which clients reach this sidecar (default: that of --listen, with the environment's SLICER_ADDRESS or POD_IP where it names no host)")
	fs.Float64Var(&f.weight, "weight", 1, "`capacity` of the server relative to those of the job's other tasks: 1e-6 to 1e6")
	fs.StringVar(&f.health, "health", "", "`path` that the server answers by a code of 200 to 399 to GET while it can serve, not with --grpc; empty for any server that takes connections")
	fs.DurationVar(&f.every, "health-interval", time.Second, "`time` between two looks whether the server answers, 50ms to 1m; one may take twice as long. A server is dead that refuses connections, or has not answered three times")
	fs.StringVar(&f.misrouted, "misrouted", string(sidecar.Serve), "`what` becomes of a request for a key of another task: serve, which in consistent mode is refuse; refuse, so that a client that routes asks the owner; or forward to the owner's sidecar, not with --grpc")
	fs.BoolVar(&f.endMoved, "end-moved", false, "end WebSockets and server-sent events, or with --grpc RPCs, whose keys have moved to another task, so that clients connect to that")
	fs.IntVar(&f.underWay, "max-under-way", 0, "greatest `number` of requests that are at the server at once, WebSockets and streams to their end; 0 is any. Looks at its health and calls of the webhook do not count. 32 others wait, the most critical first, each for at most a third of the time that it has (of 1s if it does not say), and the rest is refused, whatever the job's admission")
	fs.BoolVar(&f.believe, "believe-customers", false, "charge requests to the customers that they name, as slicerproxy does by its rules: where no client gains by another's name")
	fs.StringVar(&f.webhook, "webhook", "", "`URL` to POST changes of ownership to, as JSON; a drain waits until it has taken the last one")
	fs.DurationVar(&f.drainLimit, "drain-timeout", time.Minute, "`time` that a drain on SIGTERM may take, 1s to 1h")
	fs.StringSliceVar(&f.leases, "leases", nil, "`host:port,...` of assigners with --serve-leases, or of slicer serve, which hold the leases of a job in consistent mode")
	fs.DurationVar(&f.leaseTime, "lease-time", 5*time.Second, "`time` of a lease, 1s to 10m: so long keys stay without an owner after a crash")
}

func (f *sidecarFlags) validateSidecar(cmd *cobra.Command) error {
	if f.upstream == "" {
		for _, name := range []string{"task", "job", "advertise", "weight", "health", "health-interval", "misrouted", "end-moved", "max-under-way", "believe-customers", "webhook", "drain-timeout", "leases", "lease-time"} {
			if cmd.Flags().Changed(name) {
				return run.Usagef("--upstream is missing: --%s is for the sidecar of a server", name)
			}
		}
		if f.all.config == "" {
			return run.Usagef("--config is missing: want a YAML file with rules")
		}
		return nil
	}
	for _, name := range []string{"policy", "subset", "client-index", "max-outstanding", "patience", "response-timeout", "check"} {
		if cmd.Flags().Changed(name) {
			return run.Usagef("--%s is not allowed with --upstream: a sidecar has no choice of tasks", name)
		}
	}
	if err := run.CheckDialable("--upstream", strings.TrimPrefix(f.upstream, h2c)); err != nil {
		return err
	}
	for _, a := range f.leases {
		if err := run.CheckDialable("--leases", a); err != nil {
			return err
		}
	}
	switch {
	case f.health != "" && (f.all.grpc || f.health[0] != '/'):
		return run.Usagef("--health: %q is not allowed: want a path that begins with /, and none with --grpc", f.health)
	case f.every < 50*time.Millisecond || f.every > time.Minute:
		return run.Usagef("--health-interval: %s is not allowed: want 50ms to 1m", f.every)
	case !slices.Contains([]string{string(sidecar.Serve), string(sidecar.Refuse), string(sidecar.Forward)}, f.misrouted), f.all.grpc && f.misrouted == string(sidecar.Forward):
		return run.Usagef("--misrouted: %q is not allowed: want serve, refuse, or without --grpc forward", f.misrouted)
	case f.underWay < 0 || f.underWay > maxOutstanding:
		return run.Usagef("--max-under-way: %d is not allowed: want 0 to %d", f.underWay, maxOutstanding)
	case f.drainLimit < time.Second || f.drainLimit > time.Hour:
		return run.Usagef("--drain-timeout: %s is not allowed: want 1s to 1h", f.drainLimit)
	case lease.CheckTTL(f.leaseTime) != nil:
		return run.Usagef("--lease-time: %s is not allowed: want 1s to 10m", f.leaseTime)
	}
	if f.webhook != "" {
		if u, err := url.Parse(f.webhook); err != nil || u.Scheme != "http" || u.Host == "" {
			return run.Usagef("--webhook: %q is not allowed: want a URL that begins with http://", f.webhook)
		}
	}
	return nil
}

// jobOf is --job, or the only one that rules name.
func (f *sidecarFlags) jobOf(rules *front.Rules) (string, error) {
	if f.job != "" {
		return f.job, nil
	}
	for _, r := range rules.List {
		if f.job != "" && f.job != r.Job {
			return "", run.Usagef("--job is missing: the rules name several")
		}
		f.job = r.Job
	}
	if f.job == "" {
		return "", run.Usagef("--job is missing: want the name of the job that the server serves")
	}
	return f.job, nil
}

// named turns an error about what a slicelet is given into one that names its flag.
func named(err error) error {
	var of *assignment.FieldError
	if !errors.As(err, &of) {
		return err
	}
	switch of.Field {
	case "job name":
		return run.Usagef("--job: %w", err)
	case "task name":
		return run.Usagef("--task: %w", err)
	case "task address":
		return run.Usagef("--advertise: %w", err)
	}
	return err
}

// serve is the process of a sidecar from its flags to its end.
func (f *sidecarFlags) serve(cmd *cobra.Command, rules front.Rules) error {
	f.all.TLS.AnyClient = false
	job, err := f.jobOf(&rules)
	if err != nil {
		return err
	}
	p, err := run.Start(cmd.Name(), &f.all.Flags, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer p.Close()
	defer runtime.KeepAlive(ballast())
	p.StopLimit = f.drainLimit + run.StopLimit
	creds, err := f.all.TLS.Client()
	if err != nil {
		return err
	}
	lis, err := run.Listen("--listen", f.all.Listen)
	if err != nil {
		return err
	}
	defer lis.Close()
	leases, closeLeases, err := f.openLeases(p, grpc.WithTransportCredentials(creds))
	if err != nil {
		return err
	}
	defer closeLeases()
	cfg, err := f.sidecarConfig(p, job, grpc.WithTransportCredentials(creds))
	if err != nil {
		return err
	}
	cfg.Slicelet.Leases = leases
	if cfg.Slicelet.Address = f.all.Advertise; f.all.Advertise == "" {
		cfg.Slicelet.Address = lis.Addr().String()
	}
	keys, err := front.NewKeys(rules, job)
	if err != nil {
		return err
	}
	s, err := sidecar.New(*cfg)
	if err != nil {
		return named(err)
	}
	s.SetKeys(keys)
	p.Rereads(func() {
		if f.all.config == "" {
			return
		}
		rules, err := readRules(f.all.config)
		if err == nil {
			keys, err = front.NewKeys(rules, job)
		}
		if err != nil {
			p.Log.Error("the rules stay what they are", "error", err)
			return
		}
		s.SetKeys(keys)
		p.Log.Info("rules read again", "rules", summary(rules))
	})
	srv := newServer(s, p.Log)
	if f.all.secured() && !f.all.grpc {
		if err := f.all.TLS.Secure(srv, p.Log); err != nil {
			return err
		}
	}
	done, served := make(chan struct{}), error(nil)
	go func() {
		defer close(done)
		if f.all.grpc {
			served = s.Serve(lis)
		} else {
			served = serveOn(srv, lis)
		}
		if errors.Is(served, http.ErrServerClosed) {
			<-s.Drained() // by POST /drain: the process waits for its signal
			<-cmd.Context().Done()
		}
	}()
	drain := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), f.drainLimit)
		defer cancel()
		return s.Drain(ctx, srv)
	}
	p.Status.Handle("GET /ownership", http.HandlerFunc(s.Ownership))
	p.Status.Handle("POST /drain", drains(drain, f.drainLimit))
	p.Status.SetReady(s.Ready)
	p.Log.Info("serving", "listen", lis.Addr().String(), "grpc", f.all.grpc, "tls", f.all.secured(), "http", p.Status.Where(), "job", job, "task", s.Task(), "upstream", f.upstream)
	return p.Wait(cmd.Context(), func() error {
		err := drain()
		_ = lis.Close()
		<-done
		return err
	}, run.Ending{Done: done, Err: func() error { return fmt.Errorf("the server at %s has ended: %w", lis.Addr(), served) }})
}

// drains serves a drain to what is on this machine: it answers when that is done.
func drains(drain func() error, limit time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !run.Local(r) {
			http.Error(w, "only for what is on this machine, by way of loopback", http.StatusForbidden)
			return
		}
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(limit + run.StopLimit))
		if err := drain(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprintln(w, "drained")
	})
}

func (f *sidecarFlags) sidecarConfig(p *run.Process, job string, dial grpc.DialOption) (*sidecar.Config, error) {
	upstream, isH2C := strings.CutPrefix(f.upstream, h2c)
	cfg := &sidecar.Config{
		Slicelet: slicelet.Config{
			Job: job, Task: f.task, Zone: f.all.Zone, Weight: f.weight, Distributors: f.all.distributors, Backups: f.all.backups, CacheFile: f.all.cacheFile(job),
			Logger: p.Log, Registerer: p.Registry, DialOptions: []grpc.DialOption{dial},
		},
		Upstream: upstream, H2C: isH2C, GRPC: f.all.grpc, MaxMessage: f.all.maxMessage, Health: f.health, HealthEvery: f.every,
		Misrouted: sidecar.Misrouted(f.misrouted), EndMoved: f.endMoved, UnderWay: f.underWay, Webhook: f.webhook,
		Logger: p.Log, Registerer: p.Registry,
	}
	if f.believe {
		cfg.Slicelet.Customer = slicelet.BelieveCustomer
	}
	var err error
	if f.all.secured() {
		if cfg.TLS, err = f.all.TLS.ClientConfig(); err != nil {
			return nil, err
		}
		if f.all.grpc {
			if cfg.Credentials, err = f.all.TLS.Server(); err != nil {
				return nil, err
			}
		}
	}
	return cfg, nil
}

// openLeases is the way to the leases of a job in consistent mode, nil without --leases.
func (f *sidecarFlags) openLeases(p *run.Process, dial grpc.DialOption) (reader *lease.Reader, end func(), err error) {
	if len(f.leases) == 0 {
		return nil, func() {}, nil
	}
	var conns []grpc.ClientConnInterface
	var ends []func() error
	end = func() {
		for _, e := range ends {
			if err := e(); err != nil {
				p.Log.Warn("closing the leases", "error", err)
			}
		}
	}
	for _, a := range f.leases {
		conn, err := grpc.NewClient(a, append(remote.DialOptions(), dial)...)
		if err != nil {
			end()
			return nil, nil, fmt.Errorf("--leases: %w", err)
		}
		conns, ends = append(conns, conn), append(ends, conn.Close)
	}
	reader, err = lease.NewReader(lease.Config{Readers: remote.New(conns...), TTL: f.leaseTime, Logger: p.Log, Registerer: p.Registry})
	if err != nil {
		end()
		return nil, nil, err
	}
	ends = slices.Insert(ends, 0, reader.Close)
	return reader, end, nil
}
