package page

import (
	"bytes"
	"context"
	"sync"
	"time"
)

const (
	// leastPause and mostPause bound the time between two readings. In between it is
	// readingCosts times what the last one took, so that readers together take a share of one
	// core that does not grow with the job.
	leastPause   = 250 * time.Millisecond
	mostPause    = 10 * time.Second
	readingCosts = 60
)

// part is a piece of what is shown: an event with one line of JSON.
type part struct {
	event   string
	version uint64 // grows when data change
	data    []byte
	// rows, if not nil, are the elements of data, which is an object with a list of them
	// between head and tail: some viewers see some of them.
	rows       []row
	head, tail []byte
	// some, if not nil, is in data's place for viewers that do not see all jobs.
	some []byte
}

type row struct {
	job  string
	data []byte
}

// reader reads what is shown.
type reader interface {
	// read returns all parts anew, of which none may be changed afterwards.
	read(ctx context.Context) []part
	// pause is the least time until the next reading.
	pause() time.Duration
}

// feed is what the viewers of one job share.
type feed struct {
	stop context.CancelFunc
	// The page's lock is held for these.
	viewers int
	last    string // address of the last viewer
	ended   bool   // nothing is read any more

	mu      sync.Mutex
	parts   []part
	changed chan struct{} // closed when parts are others
	version uint64
}

func newFeed(stop context.CancelFunc) *feed { return &feed{stop: stop, changed: make(chan struct{})} }

// run reads until ctx ends. It returns when the next reading would be due, so that viewers who
// come and go have no more read than those who stay; and at once when end is closed.
func (f *feed) run(ctx context.Context, end <-chan struct{}, r reader) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-end:
			return
		}
		if ctx.Err() != nil {
			return
		}
		began := time.Now()
		f.put(r.read(ctx))
		timer.Reset(min(max(r.pause(), readingCosts*time.Since(began)), mostPause))
	}
}

// put takes the place of what was read before. What is the same keeps its version.
func (f *feed) put(parts []part) {
	f.mu.Lock()
	defer f.mu.Unlock()
	news := false
	for i := range parts {
		now := &parts[i]
		for _, was := range f.parts {
			if was.event == now.event && bytes.Equal(was.data, now.data) {
				now.version = was.version
			}
		}
		if now.version == 0 {
			f.version++
			now.version = f.version
			news = true
		}
	}
	f.parts = parts
	if news {
		close(f.changed)
		f.changed = make(chan struct{})
	}
}

// now is what was read last, and changed is closed when there is something newer.
func (f *feed) now() (parts []part, changed <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.parts, f.changed
}

// limited is the data for a viewer that sees some of the jobs, nil if that is the same as for all.
func (p *part) limited(jobs map[string]bool) []byte {
	if p.rows != nil {
		return p.only(jobs)
	}
	return p.some
}

// only is the data for a viewer that sees some of the rows.
func (p *part) only(jobs map[string]bool) []byte {
	out := bytes.Clone(p.head)
	some := false
	for _, r := range p.rows {
		if jobs[r.job] {
			if some {
				out = append(out, ',')
			}
			out = append(out, r.data...)
			some = true
		}
	}
	return append(out, p.tail...)
}
