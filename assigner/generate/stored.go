package generate

import (
	"errors"
	"fmt"
	"time"

	"github.com/slicer-project/slicer/assigner/membership"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
)

// stored is what the store said of the job, and what is to be asked of it.
type stored struct {
	*env
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
	ownOf     *membership.Table     // that own was decided from
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

// target is the generation that may come in force next, 0 if none.
func (s *stored) target() assignment.Generation {
	if !s.fit() {
		return 0
	}
	return generation(s.newest)
}

// consistent reports whether the job is there, and in consistent mode.
func (s *stored) consistent() bool {
	return s.known && s.exists && s.job.Config.Mode == assignment.Consistent
}

// standBack notes that the job is handed over: nothing more is written.
func (s *stored) standBack() {
	if s.badWrites > 0 && s.failures == 0 { // what it could do was read
		s.err = nil
	}
	s.badWrites = 0
}

// failed notes that the store did not do its part. Writes that fail are counted apart:
// a store without space is read without fault between them.
func (s *stored) failed(what string, err error) {
	if s.err == nil {
		s.errSince = s.now.Mono
	}
	most := 5 * time.Second
	if errors.Is(err, store.ErrCorrupt) {
		most = 30 * time.Second
	}
	n := &s.failures
	if what == opWrite {
		n = &s.badWrites
	}
	wait := s.backoff(*n, 100*time.Millisecond, most)
	*n++
	s.err = fmt.Errorf("%s: %w", what, err)
	s.loadDue, s.retryAt = true, s.now.Mono+wait
	s.say(levelWarn, "store failed", "error", s.err.Error(), "failures", *n, "again_in", wait.String())
}

// What failed is called.
const (
	opRead  = "read"
	opWrite = "write"
)

// recovered notes that the store works: it has answered a write, or a read while no write
// had failed.
func (s *stored) recovered() {
	if s.err != nil {
		s.say(levelInfo, "store works again", "after", (s.now.Mono - s.errSince).String())
	}
	s.err, s.failures, s.badWrites = nil, 0, 0
}
