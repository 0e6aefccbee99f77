package page

import (
	"context"
	"net"
	"net/http"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// viewer is who looks at the page.
type viewer struct {
	// all: it sees every job. Otherwise those that as is let read.
	all bool
	// as makes the context of a call that is made for it.
	as func(context.Context) context.Context
}

// admit finds out who looks, and reports whether the policy in force lets it see anything.
func (p *Page) admit(r *http.Request) (v viewer, ok bool) {
	policy, _ := p.cfg.Rights.Policy()
	switch {
	case policy == nil || local(r):
		return viewer{all: true, as: p.own}, true
	case r.TLS == nil || len(r.TLS.VerifiedChains) == 0:
		return viewer{}, false
	}
	from := &peer.Peer{Addr: address(r.RemoteAddr), AuthInfo: credentials.TLSInfo{State: *r.TLS}}
	return viewer{as: func(ctx context.Context) context.Context { return peer.NewContext(ctx, from) }}, true
}

// address is a peer's as net/http tells it.
type address string

func (a address) Network() string { return "tcp" }
func (a address) String() string  { return string(a) }

// local reports whether a request was made on this machine: both ends are loopback addresses.
// One that a proxy has passed on was not; nor is one believed that names another host, as a
// browser does which was led here by a foreign site's DNS record.
func local(r *http.Request) bool {
	for _, passed := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip", "Via"} {
		if len(r.Header.Values(passed)) > 0 {
			return false
		}
	}
	here, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return here != nil && isLoopback(here.String()) && isLoopback(r.RemoteAddr) && isLoopback(r.Host)
}

func isLoopback(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = hostport
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// guarded lets those to h that may see something, and tells the others how they might.
func (p *Page) guarded(h func(http.ResponseWriter, *http.Request, viewer)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if v, ok := p.admit(r); ok {
			h(w, r, v)
			return
		}
		p.refuse(w, r)
	})
}

// mayRead returns nil if the viewer may read a job, and otherwise an error that has a code.
func (p *Page) mayRead(ctx context.Context, v viewer, job string) error {
	if v.all {
		return nil
	}
	ctx, cancel := context.WithTimeout(v.as(ctx), callWithin)
	defer cancel()
	_, err := p.cfg.Admin.GetJob(ctx, &slicerv1.GetJobRequest{Name: job})
	// An assigner that does not answer takes no right away.
	if c := status.Code(err); slices.Contains([]codes.Code{codes.PermissionDenied, codes.NotFound, codes.InvalidArgument}, c) {
		return err
	}
	return nil
}

// readable are the jobs that the viewer may read, and all reports that it may read all.
func (p *Page) readable(ctx context.Context, v viewer) (jobs map[string]bool, all bool, err error) {
	if v.all {
		return nil, true, nil
	}
	ctx, cancel := context.WithTimeout(v.as(ctx), callWithin)
	defer cancel()
	r, err := p.cfg.Admin.ListJobs(ctx, &slicerv1.ListJobsRequest{})
	if err != nil {
		return nil, false, err
	}
	jobs = make(map[string]bool)
	for _, j := range r.GetJobs() {
		jobs[j.GetConfig().GetName()] = true
	}
	return jobs, false, nil
}
