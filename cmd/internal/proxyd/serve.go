package proxyd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/clerkgrpc"
	"github.com/slicer-project/slicer/clerk/clerkhttp"
	"github.com/slicer-project/slicer/clerk/front"
	"github.com/slicer-project/slicer/cmd/internal/run"
	"github.com/slicer-project/slicer/loadbalance/policy"
)

const (
	// shutdownLimit is how long requests may take to end after a signal.
	shutdownLimit = 10 * time.Second
	headerLimit   = 10 * time.Second // to read a request's header in
	idleLimit     = 3 * time.Minute  // of clients' connections
)

// proxy is one of HTTP or of gRPC.
type proxy interface {
	Reload(read func() (front.Rules, error)) error
	Ready() error
	Close() error
}

// serve is the process from its flags to its end.
func serve(cmd *cobra.Command, f *flags, rules front.Rules) error {
	p, err := run.Start(cmd.Name(), &f.Flags, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer p.Close()
	defer runtime.KeepAlive(ballast())
	kind, err := policy.ParseKind(f.policy)
	if err != nil {
		return err
	}
	start := f.serveHTTP
	if f.grpc {
		start = f.serveGRPC
	}
	s, err := start(p, rules, kind)
	if err != nil {
		return err
	}
	p.Rereads(func() { reread(f.config, s.proxy, p.Log) })
	p.Status.SetReady(s.proxy.Ready)
	p.Log.Info("serving", "listen", s.addr.String(), "grpc", f.grpc, "tls", f.secured(), "http", p.Status.Where(), "rules", summary(rules))
	return p.Wait(cmd.Context(), s.stop, s.ending)
}

// server is a proxy that serves.
type server struct {
	proxy  proxy
	addr   net.Addr
	stop   func() error
	ending run.Ending
}

func (f *flags) serveHTTP(p *run.Process, rules front.Rules, kind policy.Kind) (*server, error) {
	asClient, err := f.TLS.ClientConfig()
	if err != nil {
		return nil, err
	}
	creds, err := f.TLS.Client()
	if err != nil {
		return nil, err
	}
	h, err := clerkhttp.NewProxy(clerkhttp.ProxyConfig{
		Rules: rules, Policy: kind, Patience: f.patience, ResponseTimeout: f.headers, TLS: asClient, Logger: p.Log, Registerer: p.Registry,
		Clerk: f.clerks(p, creds),
	})
	if err != nil {
		return nil, err
	}
	lis, err := run.Listen("--listen", f.Listen)
	if err != nil {
		return nil, errors.Join(err, h.Close())
	}
	srv := newServer(h, p.Log)
	if f.secured() {
		if err := f.TLS.Secure(srv, p.Log); err != nil {
			return nil, errors.Join(err, lis.Close(), h.Close())
		}
	}
	done, served := make(chan struct{}), error(nil)
	go func() {
		defer close(done)
		served = serveOn(srv, lis)
	}()
	stop := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), shutdownLimit)
		defer cancel()
		if err := srv.Shutdown(ctx); err != nil {
			p.Log.Warn("requests were cut off", "error", err)
			srv.Close()
		}
		<-done
		return h.Close()
	}
	return &server{h, lis.Addr(), stop, run.Ending{Done: done, Err: func() error {
		return fmt.Errorf("the HTTP server at %s has ended: %w", lis.Addr(), served)
	}}}, nil
}

func (f *flags) serveGRPC(p *run.Process, rules front.Rules, kind policy.Kind) (*server, error) {
	creds, err := f.TLS.Client()
	if err != nil {
		return nil, err
	}
	serving := insecure.NewCredentials()
	if f.secured() {
		if serving, err = f.TLS.Server(); err != nil {
			return nil, err
		}
	}
	g, err := clerkgrpc.NewProxy(clerkgrpc.ProxyConfig{
		Rules: rules, Policy: kind, Patience: f.patience, MaxMessage: f.maxMessage, Logger: p.Log, Registerer: p.Registry,
		Clerk: f.clerks(p, creds), Authority: func(t assignment.Task) string { return t.Address },
		DialOptions: []grpc.DialOption{grpc.WithTransportCredentials(creds)},
	})
	if err != nil {
		return nil, err
	}
	lis, err := run.Listen("--listen", f.Listen)
	if err != nil {
		return nil, errors.Join(err, g.Close())
	}
	srv := run.Serve(lis, serving, func(grpc.ServiceRegistrar) {}, g.ServerOptions()...)
	stop := func() error { return errors.Join(srv.Stop(nil), g.Close()) }
	return &server{g, lis.Addr(), stop, srv.Ending()}, nil
}

// clerks makes the clerks of jobs.
func (f *flags) clerks(p *run.Process, creds credentials.TransportCredentials) func(job string) (*clerk.Clerk, error) {
	var index *int
	if f.index >= 0 {
		index = &f.index
	}
	return func(job string) (*clerk.Clerk, error) {
		return clerk.New(clerk.Config{
			Job: job, Distributors: f.distributors, Backups: f.backups, CacheFile: f.cacheFile(job), Zone: f.Zone,
			Subset: clerk.SubsetConfig{Size: f.subset, Index: index}, MaxOutstanding: f.outstanding, Logger: p.Log, Registerer: p.Registry,
			DialOptions: []grpc.DialOption{grpc.WithTransportCredentials(creds)},
		})
	}
}

// ballastSize is what the garbage that each request leaves is measured against: a
// proxy keeps little, and without would collect a hundred times a second for it.
const ballastSize = 32 << 20

// ballast is memory that is never touched, so that it costs none, and that makes the
// collector run once every 32 MiB of garbage or more, where it would every 4 MiB. A
// larger GOGC would say so too, but let a proxy with many connections take several times
// the memory that they need; a memory limit makes the collector run more often, never
// less. An operator who sets GOGC or GOMEMLIMIT wants it otherwise.
func ballast() []byte {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return nil
	}
	return make([]byte, ballastSize)
}

func serveOn(srv *http.Server, lis net.Listener) error {
	if srv.TLSConfig != nil {
		return srv.ServeTLS(lis, "", "")
	}
	return srv.Serve(lis)
}

func newServer(h http.Handler, log *slog.Logger) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler: h, Protocols: protocols,
		ReadHeaderTimeout: headerLimit, IdleTimeout: idleLimit,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// secured reports whether clients are served in TLS.
func (f *flags) secured() bool { return !f.plain && f.TLS.Cert != "" }

// reread puts the rules of the file in force.
func reread(file string, proxy proxy, log *slog.Logger) {
	var rules front.Rules
	err := proxy.Reload(func() (_ front.Rules, err error) {
		rules, err = readRules(file)
		return rules, err
	})
	if err != nil {
		log.Error("the rules stay what they are", "error", err)
		return
	}
	log.Info("rules read again", "rules", summary(rules))
}
