package page

import (
	"context"
	"net/http"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/access"
	"github.com/slicer-project/slicer/assignment/access/enforce"
	"github.com/slicer-project/slicer/cmd/internal/run"
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
	case policy == nil || run.Local(r):
		return viewer{all: true, as: p.own}, true
	case enforce.HTTPCaller(r).Identity == access.Anonymous:
		return viewer{}, false
	}
	from := &peer.Peer{Addr: address(r.RemoteAddr), AuthInfo: credentials.TLSInfo{State: *r.TLS}}
	return viewer{as: func(ctx context.Context) context.Context { return peer.NewContext(ctx, from) }}, true
}

// address is a peer's as net/http tells it.
type address string

func (a address) Network() string { return "tcp" }
func (a address) String() string  { return string(a) }

// guarded lets those to h that may see something, and tells the others how they might.
func (p *Page) guarded(h func(http.ResponseWriter, *http.Request, viewer)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if policy, _ := p.cfg.Rights.Policy(); policy == nil && !run.NamedHere(r, p.cfg.Names) {
			http.Error(w, "this host is not known by that name, so a foreign site may have led your browser here: ask for the page by localhost or an address, or start the process with the name in --http-names", http.StatusForbidden)
			return
		}
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
	asked, cancel := context.WithTimeout(v.as(ctx), callWithin)
	defer cancel()
	_, err := p.cfg.Admin.GetJob(asked, &slicerv1.GetJobRequest{Name: job})
	if err == nil || refuses(err) {
		return err
	}
	// GetJob reads the store. Where that is down, an assigner that knows the job still answers.
	asked, cancelAgain := context.WithTimeout(v.as(ctx), callWithin)
	defer cancelAgain()
	_, err = p.cfg.Admin.InspectJob(asked, &slicerv1.InspectJobRequest{Job: job})
	return err
}

// jobPage shows the page of a job, and says so if there is none. A viewer that has no right to read
// the job is told the same whether or not there is one. Where this is not known, as the store does
// not answer or too many ask at once, the page itself shows what is known.
func (p *Page) jobPage(w http.ResponseWriter, r *http.Request, v viewer) {
	name := r.URL.Query().Get("name")
	if !p.maybeJob(r.Context(), v, name) {
		answer(w, http.StatusNotFound, "missing.html", map[string]any{"Title": "Slicer: no such job", "Name": name, "Some": !v.all})
		return
	}
	serveAsset(w, r, "job.html")
}

// maybeJob reports whether there may be a job that the viewer may read.
func (p *Page) maybeJob(ctx context.Context, v viewer, name string) bool {
	if assignment.ValidateJobName(name) != nil {
		return false
	}
	select {
	case p.asking <- struct{}{}:
		defer func() { <-p.asking }()
	default:
		return true
	}
	ctx, cancel := context.WithTimeout(v.as(ctx), knownWithin)
	defer cancel()
	_, err := p.cfg.Admin.GetJob(ctx, &slicerv1.GetJobRequest{Name: name})
	return err == nil || !refuses(err) || v.all && status.Code(err) == codes.PermissionDenied
}

// refuses reports whether an error of mayRead says that the viewer may not read the job. Others
// say that this is not known: then who reads it already goes on, and no one else begins.
func refuses(err error) bool {
	return slices.Contains([]codes.Code{codes.PermissionDenied, codes.NotFound, codes.InvalidArgument}, status.Code(err))
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
