package plan

import (
	"fmt"
	"io"
	"time"

	"github.com/slicer-project/slicer/loadbalance/sim"
)

// Progress is shown when a replay has taken this long, and then that often.
const (
	progressAfter = time.Second
	progressEvery = 200 * time.Millisecond
)

// progress keeps one line on a terminal; nil shows nothing.
type progress struct {
	w           io.Writer
	began, last time.Time
	rounds      int
	first       int64
}

func newProgress(w io.Writer) *progress {
	if w == nil {
		return nil
	}
	return &progress{w: w, began: time.Now()}
}

// round is told of each window.
func (p *progress) round(w sim.Window) {
	if p == nil {
		return
	}
	if p.rounds++; p.rounds == 1 {
		p.first = w.StartMS
	}
	now := time.Now()
	if now.Sub(p.began) < progressAfter || now.Sub(p.last) < progressEvery {
		return
	}
	p.last = now
	replayed := time.Duration(w.StartMS-p.first) * time.Millisecond
	fmt.Fprintf(p.w, "\rround %d, %s of traffic, after %s\x1b[K", p.rounds, replayed.Round(time.Second), now.Sub(p.began).Round(time.Second))
}

// end wipes the line.
func (p *progress) end() {
	if p != nil && !p.last.IsZero() {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
