package serve

import "time"

// promises are for how long what was granted in each job may be held, at most.
// They are durable before anything is granted: after a restart nothing is granted
// in a job until the largest of its promises has passed. A session has one for each
// job that it takes part in.
type promises struct {
	stored map[string]time.Duration         // what is durable, by job
	before map[string]time.Duration         // what was when the store was opened
	made   map[string]map[time.Duration]int // by job: how many sessions have it
	of     map[uint64]map[string]time.Duration
	loose  bool // what is stored may be more than what is needed
}

const (
	allJobs    = "" // stands for every job
	suspension = 0  // stands for a session that takes part in all jobs
)

func newPromises() *promises {
	return &promises{stored: map[string]time.Duration{}, before: map[string]time.Duration{},
		made: map[string]map[time.Duration]int{}, of: map[uint64]map[string]time.Duration{}}
}

// load takes in what an earlier process has stored.
func (p *promises) load(job string, d time.Duration) {
	if d > 0 {
		p.stored[job], p.before[job], p.loose = d, d, true
	}
}

// missing returns what has to be durable before these are made.
func (p *promises) missing(jobs map[string]time.Duration) map[string]time.Duration {
	out := map[string]time.Duration{}
	for job, d := range jobs {
		if d > p.stored[job] {
			out[job] = d
		}
	}
	return out
}

// keep notes what is durable now; 0 is nothing.
func (p *promises) keep(jobs map[string]time.Duration) {
	for job, d := range jobs {
		if p.stored[job] = d; d == 0 {
			delete(p.stored, job)
		}
	}
}

// make makes a session's promise in a job, in place of the one that it had there.
func (p *promises) make(id uint64, job string, d time.Duration) {
	mine := p.of[id]
	if mine == nil {
		mine = map[string]time.Duration{}
		p.of[id] = mine
	}
	was, had := mine[job]
	if had && was == d {
		return
	}
	if had {
		p.take(job, was)
	}
	mine[job] = d
	if p.made[job] == nil {
		p.made[job] = map[time.Duration]int{}
	}
	p.made[job][d]++
}

func (p *promises) take(job string, d time.Duration) {
	n := p.made[job]
	if n[d]--; n[d] == 0 {
		delete(n, d)
		p.loose = true
	}
	if len(n) == 0 {
		delete(p.made, job)
	}
}

// drop takes back all that was promised to a session, which is over.
func (p *promises) drop(id uint64) {
	for job, d := range p.of[id] {
		p.take(job, d)
	}
	delete(p.of, id)
}

// lower returns what may be stored in place of what is, so long after the opening.
func (p *promises) lower(since time.Duration) map[string]time.Duration {
	out := map[string]time.Duration{}
	p.loose = false
	for job, d := range p.stored {
		need := time.Duration(0)
		for made := range p.made[job] {
			need = max(need, made)
		}
		if before := p.before[job]; since < before {
			need, p.loose = max(need, before), true
		}
		if need < d {
			out[job] = need
		}
	}
	return out
}
