package run

import (
	"fmt"
	"net/http"
	"time"

	"github.com/slicer-project/slicer/assignment/limiter"
)

// Bounds of what a scrape may cost: one holds all metrics in memory until they have
// been written, and a client need not read them.
const (
	// maxScrapes are under way at a time, maxScrapesEach of them from one address, of IPv6
	// from one /64.
	maxScrapes, maxScrapesEach = 32, 4
	// writeLimit is how long an answer on the HTTP port may take, from the request's
	// headers on until the client has read all but what the kernel buffers.
	writeLimit = 10 * time.Second
)

// scrapes limits the requests under way to h: any more are answered 503 at once, and
// their connections closed.
type scrapes struct {
	h        http.Handler
	underWay *limiter.Shares // by limiter.KeyOfAddress
}

func limitScrapes(h http.Handler) *scrapes {
	return &scrapes{h, limiter.NewShares(maxScrapes, maxScrapesEach)}
}

func (s *scrapes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	address := limiter.KeyOfAddress(r.RemoteAddr)
	if s.underWay.Take(address) != nil {
		w.Header().Set("Connection", "close")
		http.Error(w, fmt.Sprintf("too many scrapes under way: at most %d, and %d from one address", maxScrapes, maxScrapesEach), http.StatusServiceUnavailable)
		return
	}
	defer s.underWay.Give(address)
	s.h.ServeHTTP(w, r)
}
