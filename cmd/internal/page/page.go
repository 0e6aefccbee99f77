package page

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/slicer-project/slicer/assignment/access"
	"github.com/slicer-project/slicer/assignment/access/enforce"
	"github.com/slicer-project/slicer/assignment/limiter"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

const (
	// MaxViewers is how many pages are sent news at once, and MaxFromOne how many of them at one
	// address.
	MaxViewers = 64
	MaxFromOne = MaxViewers / 2
	// maxAsking is how many questions about keys are answered at once.
	maxAsking = 4
	// maxCharts is of how many jobs earlier readings of imbalance are kept.
	maxCharts = 1000
	// callWithin bounds each call of AdminService.
	callWithin = 3 * time.Second
	// knownWithin bounds the question whether there is a job, for which its page waits.
	knownWithin = time.Second
)

// Config says what a Page is made of.
type Config struct {
	// Kind and ID name the process: "assigner" and its --id.
	Kind, ID string
	// Admin answers what is asked; see AdminOf.
	Admin slicerv1.AdminServiceServer
	// Rights are the process's, nil without a policy.
	Rights *enforce.Rights
	// Identity is that of the process's own certificate, by which other processes know what it
	// asks for itself; nil for none.
	Identity func() access.Identity
	// Names are those by which the page may be asked for in plain HTTP without a policy, besides
	// localhost and addresses: in lower case.
	Names []string
	// Logger is silent if it is nil.
	Logger *slog.Logger
}

// Page is the status page of a process. All methods are safe for concurrent use.
type Page struct {
	cfg     Config
	log     *slog.Logger
	handler http.Handler
	viewers *limiter.Shares // by address
	asking  chan struct{}

	ctx  context.Context // until Close
	end  context.CancelFunc
	wg   sync.WaitGroup // readers
	mu   sync.Mutex
	shut bool
	// feeds are those that have viewers, by job; "" is the overview.
	feeds  map[string]*feed
	charts map[string]*chart
}

// New makes a page. It reads nothing before somewhere it is looked at.
func New(cfg Config) *Page {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	p := &Page{
		cfg: cfg, log: cfg.Logger, viewers: limiter.NewShares(MaxViewers, MaxFromOne), asking: make(chan struct{}, maxAsking),
		feeds: make(map[string]*feed), charts: make(map[string]*chart),
	}
	p.ctx, p.end = context.WithCancel(context.Background())
	p.handler = p.routes()
	return p
}

// ServeHTTP answers requests for the page and what it consists of. All paths lie at one level.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) { p.handler.ServeHTTP(w, r) }

// Close ends all that viewers have open and waits for the readers.
func (p *Page) Close() error {
	p.mu.Lock()
	p.shut = true
	p.mu.Unlock()
	p.end()
	p.wg.Wait()
	return nil
}

func (p *Page) routes() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", p.guarded(func(w http.ResponseWriter, r *http.Request, _ viewer) { serveAsset(w, r, "overview.html") }))
	mux.Handle("GET /job", p.guarded(p.jobPage))
	// The program and its looks are public, and needed to say who may see the rest.
	for _, file := range assetNames() {
		mux.HandleFunc("GET /"+file, func(w http.ResponseWriter, r *http.Request) { serveAsset(w, r, file) })
	}
	mux.Handle("GET /events", ownSite(p.guarded(p.events)))
	mux.Handle("GET /explain", ownSite(p.guarded(p.explain)))
	return secureHeaders(mux)
}

// own is the context of what the page asks for all its viewers.
func (p *Page) own(ctx context.Context) context.Context {
	id := access.Anonymous
	// Without a policy here all may look, so nothing is asked that others would not be told.
	if policy, _ := p.cfg.Rights.Policy(); policy != nil && p.cfg.Identity != nil {
		id = p.cfg.Identity()
	}
	return enforce.Own(ctx, id)
}

// follow returns the feed of a job, or of the overview, and what to call when it is not needed
// any more; nil when the page is closed. The caller holds a place of viewers for an address, which
// goes back when it has left; that of the last viewer of a feed goes back when the reader has ended.
func (p *Page) follow(job, from string) (f *feed, leave func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shut {
		return nil, nil
	}
	f = p.feeds[job]
	if f == nil {
		ctx, stop := context.WithCancel(p.ctx)
		f = newFeed(stop)
		p.feeds[job] = f
		var r reader = newJobReader(p, job)
		if job == "" {
			r = newOverviewReader(p)
		}
		p.wg.Go(func() {
			f.run(ctx, p.ctx.Done(), r)
			p.mu.Lock()
			defer p.mu.Unlock()
			if f.ended = true; f.viewers == 0 {
				p.viewers.Give(f.last)
			}
		})
	}
	f.viewers++
	return f, func() { p.unfollow(job, f, from) }
}

func (p *Page) unfollow(job string, f *feed, from string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f.viewers--; f.viewers == 0 {
		f.stop()
		delete(p.feeds, job)
		if f.last = from; !f.ended {
			return
		}
	}
	p.viewers.Give(from)
}

// chart is that of a job, made if need be; nil when there are too many.
func (p *Page) chart(job string) *chart {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.charts[job]
	if c == nil && len(p.charts) < maxCharts {
		c = &chart{}
		p.charts[job] = c
	}
	return c
}

// keepCharts forgets those of jobs that are gone.
func (p *Page) keepCharts(jobs map[string]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for job := range p.charts {
		if !jobs[job] && p.feeds[job] == nil {
			delete(p.charts, job)
		}
	}
}
