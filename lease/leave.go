package lease

import (
	"errors"
	"fmt"
)

// Close ends belief, releases what is held in the job and waits for what it runs.
// A release that is not answered, or cannot be sent, is an error; the reader then
// goes on releasing until it is done, the session ends or the reader is closed, and
// from then on Close returns nil.
func (j *Job) Close() error {
	j.leave()
	<-j.left
	j.fetches.Wait()
	j.r.mu.Lock()
	defer j.r.mu.Unlock()
	return j.leftErr
}

var errExpired = errors.New("the lease may be lost")

// depart lets Close return once every release has been answered, or one has failed.
// What is not done with by then may be released at any time, and that release could
// take what was acquired again: so the next Job of this name begins when it is.
func (j *Job) depart(valid bool, e Event) {
	if !j.core.leaving || j.departed {
		return
	}
	claims := j.core.Claims()
	var why error
	switch {
	case j.core.Left(), j.core.Resting():
	case e.Kind == Unknown && e.Release:
		why = j.err
	case !valid:
		why = errExpired
	default:
		return
	}
	if why != nil {
		why = fmt.Errorf("lease: job %s: %s is not released yet: %w", j.cfg.Job, claims, why)
	}
	if len(claims) > 0 {
		j.r.cfg.Logger.Warn("job left, claims to be released", "job", j.cfg.Job, "claims", claims, "reason", why)
	}
	j.r.leave(j, why)
	close(j.left)
}

// end is the end of run.
func (j *Job) end() {
	j.cancel()
	j.stopWatch()
	j.belief.Store(nil)
	j.tell()
	if !j.departed {
		j.r.leave(j, nil) // the reader is closed, and gives back the session
		close(j.left)
	}
	j.calls.Wait()
	j.fetches.Wait()
	j.r.forget(j)
}
