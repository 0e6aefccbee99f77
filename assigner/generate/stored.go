package generate

import (
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
)

// stored is what the store said of the job, and what is to be asked of it.
type stored struct {
	known    bool // it has answered
	exists   bool
	job      store.Job
	id       uint64
	newest   *assignment.Assignment // nil if there is none
	loadDue  bool
	retryAt  time.Duration
	failures int   // of reads in a row
	err      error // of the last attempt to read or write
	errSince time.Duration
	// badWrites is how many writes in a row have failed, whatever was read between them.
	badWrites int
	conflicts int      // in a row
	unsure    *Planned // written with an unknown outcome
	own       assignment.Generation
	above     assignment.Generation // a number that the store says must be exceeded
}

// counts is the newest that a Distributor has reported, of the job's store: before that
// is known all may be.
func (s *stored) counts(d *distributor) (newest assignment.Generation) {
	for _, h := range d.reported {
		if !s.known || h.Store == s.id {
			newest = max(newest, h.Generation)
		}
	}
	return newest
}

func (s *stored) interval() time.Duration {
	if i := s.job.Config.Balance.Interval; i > 0 {
		return i
	}
	return assignment.JobConfig{}.WithDefaults().Balance.Interval
}

// reported is the newest generation that any Distributor or task says it holds.
func (s *stored) reported(by []*distributor) assignment.Generation {
	newest := s.above
	for _, d := range by {
		newest = max(newest, s.counts(d))
	}
	return newest
}

// fit reports whether what is stored may come in force. What a job in affinity mode
// has left behind may give a key to several.
func (s *stored) fit() bool {
	return s.newest == nil || single(s.newest)
}
