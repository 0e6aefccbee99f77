package assigner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assigner/generate"
	"github.com/slicer-project/slicer/assigner/membership"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/access/enforce"
	"github.com/slicer-project/slicer/assignment/backoff"
	"github.com/slicer-project/slicer/assignment/store"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// Orders of operators are written to the store by whichever assigner is asked, by
// compare-and-swap; the preferred one sees them there, and adopts them. Nothing that it
// decided before can be stored after them: see store.Commit.

// order is a request in the terms of the store.
type order struct {
	action string // in words, for the history
	// edit puts it into overrides whose version is the order's. Note says what
	// it has lifted, or that it changes nothing.
	edit func(c *store.Overrides, s store.Stamp) (note string, err error)
	// revert takes it out again, by its number, and reports whether any of it was in
	// force. An order that has one is revoked if it cannot be carried out in time.
	revert func(c *store.Overrides, order int64) bool
	// until is what has to hold besides for it to be carried out, if not nil.
	until func(v generate.View) bool
}

// stamp says who gives an order, and refuses words that are too long. Where it comes from
// is the peer's own address, unless that is one of the control plane's, which pass on whose
// call it is.
func (v adminService) stamp(c enforce.Caller, who, why, from string) (store.Stamp, error) {
	now, _ := v.a.now().Since(v.a.start)
	if from != "" && c.Plane && c.Via == "" {
		c.Address, c.Via = from, c.Address // a Distributor of before says it in the message alone
	}
	s := store.Stamp{Identity: string(c.Identity), Who: who, Why: why, Peer: c.From(), When: time.UnixMilli(max(now.UnixMilli(), 1)).UTC()}
	if len(s.Peer) > store.MaxWho {
		s.Peer = s.Peer[:store.MaxWho]
	}
	return s, s.Validate()
}

// GiveOrder implements AdminService. It returns when the order is stored and, where
// there is something to do, carried out; or says why that is not done yet.
func (v adminService) GiveOrder(ctx context.Context, m *slicerv1.GiveOrderRequest) (_ *slicerv1.GiveOrderResponse, err error) {
	ctx, span := orderSpan(ctx, v.a.cfg.Tracer, m.GetJob(), kindOf(m))
	defer func() { span.End(err) }()
	ctx, done, err := v.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if m.GetWho() == "" {
		return nil, statusOf(&assignment.FieldError{Field: "who", Value: "", Allowed: fmt.Sprintf("1 to %d bytes: who gives the order", store.MaxWho)})
	}
	c := v.caller(ctx)
	stamp, err := v.stamp(c, m.GetWho(), m.GetWhy(), m.GetPeer())
	if err != nil {
		return nil, statusOf(err)
	}
	job, home, err := v.find(ctx, c, assignment.Order, m.GetJob())
	if err != nil {
		return nil, statusOf(err)
	}
	o, err := v.orderOf(ctx, job, home, m)
	if err != nil {
		return nil, statusOf(err)
	}
	vanished := v.vanished(m)
	resp, err := v.give(ctx, job, home, o, stamp)
	if err != nil {
		return nil, err
	}
	span.Set(slog.Int64("order", resp.Order), slog.Int64("generation", resp.Generation))
	if resp.Pending != "" {
		span.Set(slog.String("waits_for", resp.Pending))
	}
	if vanished > 0 {
		resp.Note = strings.TrimPrefix(resp.Note+"; lifted the assigner's own freeze, of "+vanished.Round(time.Second).String(), "; ")
	}
	if b := m.GetRollback(); b != nil && resp.Pending == "" {
		resp.Note = v.elsewhere(ctx, m.GetJob(), home, assignment.Generation(b.GetGeneration()), assignment.Generation(resp.Generation))
	}
	return resp, nil
}

// kindOf is what kind of order is given, in a word.
func kindOf(m *slicerv1.GiveOrderRequest) string {
	which := m.ProtoReflect().WhichOneof(m.ProtoReflect().Descriptor().Oneofs().ByName("order"))
	if which == nil {
		return "none"
	}
	return string(which.Name())
}

// give writes an order down, and waits until it is carried out.
func (v adminService) give(ctx context.Context, job store.Job, home *storeWatch, o order, stamp store.Stamp) (*slicerv1.GiveOrderResponse, error) {
	given, note, err := v.apply(ctx, job, home, o, stamp)
	if err != nil {
		return nil, statusOf(fmt.Errorf("job %s: %w", job.Config.Name, err))
	}
	g, why := v.await(ctx, job.Config.Name, given.Version, o)
	if why != "" && o.revert != nil {
		if g, err = v.revoke(job, home, given.Version, o, stamp, why); err != nil {
			return nil, err
		}
		why = "" // carried out after all
	}
	return &slicerv1.GiveOrderResponse{Order: given.Version, Note: note, Overrides: store.OverridesToProto(given), Generation: int64(g), Pending: why}, nil
}

// apply writes an order down, with its entry in the history, and tells the job.
func (v adminService) apply(ctx context.Context, job store.Job, home *storeWatch, o order, stamp store.Stamp) (store.Overrides, string, error) {
	name := job.Config.Name
	for {
		cur, err := home.backend.Overrides(ctx, name)
		if err != nil {
			return cur, "", err
		}
		next := cur.Clone()
		next.Version++
		note, err := o.edit(&next, stamp)
		if err != nil {
			return cur, "", err
		}
		e := v.entry(name, o.action, stamp)
		e.Order = next.Version
		switch err = home.backend.PutOverrides(ctx, name, next, e, job.Config.History); {
		case err == nil:
			v.audit(name, o.action, stamp).Info("order given", "order", next.Version)
			v.a.changed(name)
			return next, note, nil
		case !errors.Is(err, store.ErrConflict) || !backoff.Sleep(ctx, rand.N(20*time.Millisecond)):
			return cur, "", err
		}
	}
}

// maxAction bounds what an entry says was done, in bytes.
const maxAction = 2 * store.MaxWhy

// entry is what the history is to say of something done by order; it is not numbered yet.
func (v adminService) entry(job, action string, stamp store.Stamp) store.Entry {
	e := store.Entry{Action: assignment.Clip(action, maxAction), Assigner: v.a.cfg.ID, Stamp: stamp}
	if r := v.a.lookup(job); r != nil {
		r.ask(func(c generate.View) {
			if a := c.Stored(); a != nil {
				e.Generation = a.Generation()
			}
		})
	}
	return e
}

// How long an answer waits for an order to be carried out: for so long, but not
// until the caller has given up.
const (
	carriedOutWithin = 20 * time.Second
	answerBefore     = time.Second
	carriedOutPoll   = 100 * time.Millisecond
)

// patience is for how long an answer to that call waits.
func patience(ctx context.Context) time.Duration {
	at, ok := ctx.Deadline()
	if !ok {
		return carriedOutWithin
	}
	left := time.Until(at)
	return min(carriedOutWithin, max(left-answerBefore, left/2))
}

// await waits until an order has been carried out, and otherwise says why it is not
// yet, at once if waiting does not help.
func (v adminService) await(ctx context.Context, job string, number int64, o order) (g assignment.Generation, why string) {
	ctx, cancel := context.WithTimeout(ctx, patience(ctx))
	defer cancel()
	tick := time.NewTicker(carriedOutPoll)
	defer tick.Stop()
	why = "the job is not known here yet"
	for over := false; ; {
		var ok, final bool
		turn := make(chan struct{})
		if r := v.a.lookup(job); r != nil {
			r.ask(func(c generate.View) {
				g, ok, why, final = c.CarriedOut(number)
				if ok && o.until != nil && !o.until(c) {
					ok, why = false, c.Holding()
				}
				turn = r.turn
			})
		}
		switch {
		case ok:
			return g, ""
		case over && why == "":
			return g, "the assignment has not changed yet"
		case over, final:
			return g, why
		}
		select {
		case <-turn:
		case <-tick.C:
		case <-ctx.Done():
			over = true // once more: it may have been carried out just now
		}
	}
}

// revokeWithin bounds the revoking of an order whose caller waits no more.
const revokeWithin = 5 * time.Second

// revoke takes out an order that could not be carried out, and says why. If it is not in
// force any more it has been carried out after all: the newest generation has it, or
// follows one that has.
func (v adminService) revoke(job store.Job, home *storeWatch, number int64, o order, stamp store.Stamp, why string) (assignment.Generation, error) {
	if v.a.ctx.Err() != nil {
		return 0, errClosing
	}
	ctx, cancel := context.WithTimeout(v.a.ctx, revokeWithin)
	defer cancel()
	errDone := errors.New("carried out meanwhile")
	back := order{action: "take back: " + o.action, edit: func(c *store.Overrides, _ store.Stamp) (string, error) {
		if !o.revert(c, number) {
			return "", errDone
		}
		return "", nil
	}}
	stamp.Why = assignment.Clip(why, store.MaxWhy)
	_, _, err := v.apply(ctx, job, home, back, stamp)
	if errors.Is(err, errDone) {
		a, err := home.backend.Read(ctx, job.Config.Name)
		if err != nil {
			return 0, statusOf(fmt.Errorf("job %s: %s: carried out, but the generation in which it is cannot be read: %w", job.Config.Name, o.action, err))
		}
		return a.Generation(), nil
	}
	if err != nil {
		return 0, status.Errorf(codes.FailedPrecondition, "job %s: %s: not carried out in time (%s), and it is not known whether it still will be: %v", job.Config.Name, o.action, why, err)
	}
	return 0, status.Errorf(codes.FailedPrecondition, "job %s: %s: not possible now, nothing has changed: %s", job.Config.Name, o.action, why)
}

// vanished is for how long this assigner keeps the job frozen because its tasks
// vanished, if that is what is to be lifted.
func (v adminService) vanished(m *slicerv1.GiveOrderRequest) (d time.Duration) {
	if r := v.a.lookup(m.GetJob()); r != nil && m.GetUnfreeze() != nil {
		r.ask(func(c generate.View) { d = c.Vanished() })
	}
	return d
}

// known reports whether a job has a task of that name, and how many others may own
// something: as the members are known here, failing that as they are stored.
func (v adminService) known(ctx context.Context, job string, home *storeWatch, task string, excluded func(string) bool) (found bool, others int, err error) {
	count := func(t assignment.Task) {
		found = found || t.Name == task
		if t.Name != task && t.State == assignment.TaskRunning && !excluded(t.Name) {
			others++
		}
	}
	if r := v.a.lookup(job); r != nil {
		r.ask(func(c generate.View) {
			for _, t := range c.Tasks() {
				count(t.Task)
			}
		})
	}
	if found {
		return true, others, nil
	}
	a, err := home.backend.Read(ctx, job)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return false, 0, err
	}
	if a != nil {
		others = 0
		for _, t := range a.Tasks() {
			count(t)
		}
	}
	return found, others, nil
}

func (v adminService) mustKnow(ctx context.Context, job string, home *storeWatch, task string) error {
	if err := store.ValidateTaskName(task); err != nil {
		return err
	}
	found, _, err := v.known(ctx, job, home, task, func(string) bool { return false })
	if err == nil && !found {
		err = fmt.Errorf("job %s: %w", job, noTask(task))
	}
	return err
}

func noTask(task string) error {
	return fmt.Errorf("%w: %w", membership.ErrUnknown, &assignment.FieldError{Field: "task", Value: task, Allowed: "the name of one of the job's tasks"})
}

func at(list []store.Exclusion, task string) (int, bool) {
	return slices.BinarySearchFunc(list, task, func(x store.Exclusion, task string) int { return strings.Compare(x.Task, task) })
}
