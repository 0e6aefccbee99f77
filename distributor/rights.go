package distributor

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/access"
	"github.com/slicer-project/slicer/assignment/access/enforce"
	"github.com/slicer-project/slicer/assignment/limiter"
	"github.com/slicer-project/slicer/distributor/fanout"
	"github.com/slicer-project/slicer/distributor/internal/handlers"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// petition is what the peer of a call asks to do with a job: to watch it, or to own a task.
type petition struct {
	rights *enforce.Rights // nil: it is granted
	caller enforce.Caller
	verb   assignment.Verb
	task   string // with Own
	peer   string // the client to the limiter
}

// watches is what the peer of a call asks for that wants the job's assignments.
func watches(ctx context.Context, r *enforce.Rights) *petition {
	return &petition{rights: r, caller: r.Peer(ctx), verb: assignment.Watch, peer: limiter.KeyOfContext(ctx)}
}

// petitionOf is what a subscriber's hello asks for.
func petitionOf(ctx context.Context, r *enforce.Rights, in fanout.Hello) *petition {
	p := watches(ctx, r)
	if in.Role == slicerv1.Role_ROLE_SLICELET {
		p.verb, p.task = assignment.Own, in.Task.GetName()
	}
	return p
}

// policy is the one that is in force, nil for none: then nothing is asked for.
func (p *petition) policy() *access.Policy {
	if p == nil {
		return nil
	}
	policy, _ := p.rights.Policy()
	return policy
}

// check returns PERMISSION_DENIED if the policy in force, and what the job's config says,
// do not allow it.
func (p *petition) check(job string, a assignment.Access) error {
	if p == nil {
		return nil
	}
	return p.rights.Check(p.caller, access.Question{Verb: p.verb, Job: job, Access: a, Task: p.task})
}

// acquireFor is acquire for the peer of a call. One that asks for too many names that are
// not known, and may not have what there is by default, does not learn which are.
func (d *Distributor) acquireFor(ctx context.Context, name string, p *petition) (*job, error) {
	j, err := d.acquire(name, p.peer)
	if status.Code(err) != codes.ResourceExhausted {
		return j, err
	}
	limiter.Refuse(ctx)
	if denied := p.check(name, assignment.Access{}); denied != nil {
		return nil, denied
	}
	return nil, err
}

// admit calls enter, with the job's lock held, once it is known that the petition may be
// granted. Where there is a policy that takes what the job's config says of rights, which
// is waited for. enter may be nil.
func (j *job) admit(ctx context.Context, p *petition, enter func(now time.Time) error) error {
	wait, err := j.tryAdmit(time.Now(), p, false, enter)
	if wait == nil {
		return err
	}
	patient := time.NewTimer(fanout.Patience)
	defer patient.Stop()
	for waited := false; wait != nil; {
		select {
		case <-wait:
		case <-patient.C:
			waited = true
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case <-j.d.handlers.Done():
			return handlers.ErrClosing
		}
		wait, err = j.tryAdmit(time.Now(), p, waited, enter)
	}
	return err
}

// tryAdmit is admit; wait, if it is not nil, is closed when it is worth trying again.
func (j *job) tryAdmit(now time.Time, p *petition, waited bool, enter func(now time.Time) error) (wait <-chan struct{}, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if p.policy() != nil {
		said, ok := j.stepLocked(now, fanout.AccessAsked{Waited: waited}).(fanout.Access)
		if !ok {
			return j.changed, nil
		}
		if err = said.Err; err == nil {
			err = p.check(j.name, said.Access)
		}
	}
	if err == nil && enter != nil {
		err = enter(now)
	}
	return nil, err
}

// review ends the streams of those that may not go on, after a change of the policy or of
// what the job's config says.
func (j *job) review() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.reviewLocked()
}

func (j *job) reviewLocked() {
	if a, known := j.core.Access(); known {
		for _, s := range j.subs {
			if err := s.petition.check(j.name, a); err != nil {
				s.end(err)
			}
		}
		for _, c := range j.clients {
			if c.denied == nil {
				c.denied = c.petition.check(j.name, a)
			}
		}
	}
	j.changedLocked()
}

// access is what the job's config says of rights, as far as it is known.
func (j *job) access() assignment.Access {
	j.mu.Lock()
	defer j.mu.Unlock()
	a, _ := j.core.Access()
	return a
}

// changedLocked wakes what waits for j.changed.
func (j *job) changedLocked() {
	close(j.changed)
	j.changed = make(chan struct{})
}

// followPolicy reviews all streams whenever another policy is in force.
func (d *Distributor) followPolicy(ctx context.Context) {
	_, changed := d.cfg.Rights.Policy()
	for {
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
		_, changed = d.cfg.Rights.Policy()
		for _, j := range d.all() {
			j.review()
		}
	}
}

// all are the jobs that are served.
func (d *Distributor) all() (jobs []*job) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, j := range d.jobs {
		jobs = append(jobs, j)
	}
	return jobs
}

// tasks counts the tasks that are connected, by the client whose they are: its identity, or
// its address. Several streams of one task are one, since a new one takes the place of an
// old one that has not ended yet.
type tasks struct {
	mu sync.Mutex // taken after any job's
	of map[string]map[taskName]int
}

type taskName struct{ job, task string }

// enter counts a slicelet's stream in, or returns RESOURCE_EXHAUSTED if the policy allows its
// client no more tasks. What is returned is to be called at its end.
func (t *tasks) enter(p *petition, job string) (leave func(), err error) {
	if p == nil || p.rights == nil || p.verb != assignment.Own {
		return func() {}, nil
	}
	name := taskName{job, p.task}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.roomLocked(p, name); err != nil {
		return nil, err
	}
	own := t.of[p.peer]
	if own == nil {
		own = make(map[taskName]int)
		t.of[p.peer] = own
	}
	own[name]++
	return func() { t.leave(p.peer, name) }, nil
}

// room is the error of enter, where nothing is counted yet: before the job is looked up, and its
// lock waited for.
func (t *tasks) room(p *petition, job string) error {
	if p == nil || p.rights == nil || p.verb != assignment.Own {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.roomLocked(p, taskName{job, p.task})
}

func (t *tasks) roomLocked(p *petition, name taskName) error {
	own := t.of[p.peer]
	if most := p.policy().Bounds(p.caller.Identity).Tasks; most > 0 && own[name] == 0 && len(own) >= most {
		return status.Errorf(codes.ResourceExhausted, "job %q: task %q would be one too many: %d tasks of %s are connected to this distributor, and bounds.tasks of the policy allows %d",
			name.job, name.task, len(own), p.peer, most)
	}
	return nil
}

func (t *tasks) leave(peer string, name taskName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	own := t.of[peer]
	if own[name]--; own[name] == 0 {
		delete(own, name)
	}
	if len(own) == 0 {
		delete(t.of, peer)
	}
}
