package etcdstore

import (
	"context"
	"fmt"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/store/internal/record"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// directBytes is the most of pieces that go into the transaction that moves
	// the head; with head and generation it stays well below etcd's 1.5 MiB.
	directBytes = record.PieceSize
	// attemptTime bounds a write, so that the collector of another process,
	// which waits longer, never sees an attempt that is alive.
	attemptTime = time.Minute
)

// Write implements store.Store. It takes one request when the assignment that
// next follows is known here from a Read or Write, and the change is small.
func (s *Store) Write(ctx context.Context, next *assignment.Assignment) error {
	return s.Commit(ctx, store.Commit{Next: next})
}

// WriteFenced implements store.Fencer. The token is the create revision of the
// key that package lease/etcd keeps the job lease in, below the same prefix.
func (s *Store) WriteFenced(ctx context.Context, next *assignment.Assignment, token int64) error {
	if token <= 0 {
		return fmt.Errorf("job %s: token %d: %w", next.Job(), token, store.ErrFenced)
	}
	return s.Commit(ctx, store.Commit{Next: next, Token: token})
}

// Commit implements store.Journal. It takes one request under the same conditions
// as Write, if the overrides are known here from Overrides or PutOverrides.
func (s *Store) Commit(ctx context.Context, c store.Commit) error {
	next := c.Next
	if err := record.CheckCommit(c); err != nil {
		return err
	}
	if next.StoreID() != s.ID() {
		return fmt.Errorf("%w: the assignment is of store %016x, this is %016x", store.ErrConflict, next.StoreID(), s.ID())
	}
	ctx, done, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, attemptTime)
	defer cancel()
	s.startSweeper()
	job := next.Job()
	st := s.known(job)
	if st.a == nil || st.a.Generation() != next.Previous() {
		if st, err = s.load(ctx, job); err != nil {
			return err
		}
		if err := mayFollow(&s.layout, st, next); err != nil {
			return err
		}
	}
	change, err := s.layout.Plan(st.head, st.a, next, s.cfg.Keep, random())
	if err != nil {
		return err
	}
	a := attempt{s: s, job: job, next: next, st: st, change: change, token: c.Token, commit: c}
	if c.Overrides != store.AnyVersion {
		if a.under, err = s.overridesOf(ctx, job, max(c.Overrides, 0)); err != nil {
			return err
		}
	}
	return a.run(ctx)
}

// mayFollow says what keeps next from following what is stored.
func mayFollow(l *record.Layout, st state, next *assignment.Assignment) error {
	var current assignment.Generation
	if st.head != nil {
		current = st.head.Generation
	}
	switch {
	case !st.config:
		return fmt.Errorf("job %s: %w", next.Job(), store.ErrNotFound)
	case current != next.Previous():
		return &store.ConflictError{Key: l.Head(next.Job()), Current: int64(current)}
	case current != 0 || st.goneRev == 0:
		return nil
	}
	gone, err := l.DecodeTombstone(next.Job(), st.gone)
	if err == nil && next.Generation() <= gone.Generation {
		err = &store.ConflictError{Key: l.Gone(next.Job()), Current: int64(gone.Generation)}
	}
	return err
}

// attempt is one write under way.
type attempt struct {
	s      *Store
	job    string
	next   *assignment.Assignment
	st     state // that next follows
	change *record.Change
	marker string // key; empty when everything fits one transaction
	token  int64  // of the job lease, if it counts; else 0
	commit store.Commit
	under  knownOverrides // that are to be in force, if commit says so
}

func (a *attempt) run(ctx context.Context) error {
	size := 0
	for _, p := range a.change.Pieces {
		size += len(p.Value)
	}
	if size > directBytes+64 {
		a.marker = a.s.layout.Attempt(a.job, a.next.Generation(), a.change.Generation.Attempt)
		for i := range a.change.Pieces {
			if err := a.stage(ctx, i); err != nil {
				a.abandon(ctx)
				return err
			}
		}
	}
	err := a.finish(ctx)
	if err != nil && a.marker != "" {
		a.abandon(ctx)
	}
	return err
}

// unmoved are the comparisons that hold as long as next may be written.
func (a *attempt) unmoved() []clientv3.Cmp {
	l := &a.s.layout
	cmps := []clientv3.Cmp{
		clientv3.Compare(clientv3.Value(l.ID()), "=", a.s.idSeal),
		clientv3.Compare(clientv3.CreateRevision(l.Config(a.job)), ">", 0),
		clientv3.Compare(clientv3.ModRevision(l.Head(a.job)), "=", a.st.headRev),
	}
	if a.st.headRev == 0 {
		// No head now and no head before does not mean that there was none between.
		cmps = append(cmps, clientv3.Compare(clientv3.ModRevision(l.Gone(a.job)), "=", a.st.goneRev))
	}
	if a.commit.Overrides != store.AnyVersion {
		cmps = append(cmps, clientv3.Compare(clientv3.ModRevision(l.Overrides(a.job)), "=", a.under.rev))
	}
	if a.token != 0 {
		cmps = append(cmps, clientv3.Compare(clientv3.CreateRevision(l.Leader(a.job)), "=", a.token))
	}
	return cmps
}

// why reads what unmoved compares.
func (a *attempt) why() []clientv3.Op {
	l := &a.s.layout
	return []clientv3.Op{
		clientv3.OpGet(l.ID()),
		clientv3.OpGet(l.Config(a.job), clientv3.WithKeysOnly()),
		clientv3.OpGet(l.Head(a.job)),
		clientv3.OpGet(l.Gone(a.job)),
		clientv3.OpGet(l.Leader(a.job)),
		clientv3.OpGet(l.Overrides(a.job)),
	}
}

// stage puts one piece. The first comes with the marker; the others, and the
// head, only if the marker is there still: what arrives after the collector has
// been leaves nothing behind.
func (a *attempt) stage(ctx context.Context, i int) error {
	p := a.change.Pieces[i]
	t := txn{
		when: []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(a.marker), ">", 0)},
		do:   []clientv3.Op{clientv3.OpPut(p.Key, string(p.Value))},
		els:  a.why(),
	}
	if i == 0 {
		t.when = a.unmoved()
		t.do = append(t.do, clientv3.OpPut(a.marker, string(a.s.layout.Seal(a.marker, nil))))
	}
	resp, err := a.s.commit(ctx, t)
	if err != nil {
		return err
	}
	if !resp.Succeeded {
		return a.refused(resp)
	}
	return nil
}

// finish moves the head. The marker goes with it: from now on the pieces are the
// head's.
func (a *attempt) finish(ctx context.Context) error {
	l := &a.s.layout
	t := txn{when: a.unmoved(), els: a.why(), do: ops(l.Attach(a.job, a.change, a.commit, a.under.c))}
	head, generation := l.Records(a.job, a.change)
	t.do = append(t.do,
		clientv3.OpPut(head.Key, string(head.Value)),
		clientv3.OpPut(generation.Key, string(generation.Value)),
	)
	if a.marker != "" {
		t.when = append(t.when, clientv3.Compare(clientv3.CreateRevision(a.marker), ">", 0))
		t.do = append(t.do, clientv3.OpDelete(a.marker))
	} else {
		for _, p := range a.change.Pieces {
			t.do = append(t.do, clientv3.OpPut(p.Key, string(p.Value)))
		}
	}
	if from, to := a.change.DropFrom, a.change.DropTo; from != to {
		t.do = append(t.do,
			clientv3.OpDelete(l.Generation(a.job, from), clientv3.WithRange(l.Generation(a.job, to))),
			clientv3.OpDelete(l.ChunksFrom(a.job, from), clientv3.WithRange(l.ChunksFrom(a.job, to))))
	}
	resp, err := a.s.commit(ctx, t)
	if err != nil {
		return err
	}
	if !resp.Succeeded {
		return a.refused(resp)
	}
	st := a.st
	st.a, st.head, st.headRev = a.next, a.change.Head, resp.Header.Revision
	a.s.learn(a.job, st)
	if a.commit.Fulfills {
		a.s.learnOverrides(a.job, knownOverrides{a.under.c.Fulfilled(), resp.Header.Revision})
	}
	return nil
}

// refused says which comparison failed.
func (a *attempt) refused(resp *clientv3.TxnResponse) error {
	if err := a.s.sameIdentity(resp, 0); err != nil {
		return err
	}
	if a.token != 0 && createdAt(resp, 4) != a.token {
		return fmt.Errorf("job %s: generation %d: %w", a.job, a.next.Generation(), store.ErrFenced)
	}
	if _, rev := got(resp, 1); rev == 0 {
		return fmt.Errorf("job %s: %w", a.job, store.ErrNotFound)
	}
	value, headRev := got(resp, 2)
	if headRev != a.st.headRev {
		var current assignment.Generation
		if headRev != 0 {
			head, err := a.s.layout.DecodeHead(a.job, value)
			if err != nil {
				return err
			}
			current = head.Generation
		}
		return &store.ConflictError{Key: a.s.layout.Head(a.job), Current: int64(current)}
	}
	if value, rev := got(resp, 3); headRev == 0 && rev != a.st.goneRev {
		gone, err := a.s.layout.DecodeTombstone(a.job, value)
		if err != nil {
			return err
		}
		return &store.ConflictError{Key: a.s.layout.Gone(a.job), Current: int64(gone.Generation)}
	}
	if value, rev := got(resp, 5); a.commit.Overrides != store.AnyVersion && rev != a.under.rev {
		o := knownOverrides{rev: rev}
		if rev != 0 {
			var err error
			if o.c, err = a.s.layout.DecodeOverrides(a.job, value); err != nil {
				return err
			}
		}
		return &store.ConflictError{Key: a.s.layout.Overrides(a.job), Current: o.c.Version}
	}
	return fmt.Errorf("%w: the write took so long that it was taken for dead", store.ErrUnavailable)
}

// abandon takes an attempt's pieces away, if it can; else the collector will.
// Should the head have moved after all, the marker is gone and nothing happens.
func (a *attempt) abandon(ctx context.Context) {
	if err := a.s.collect(ctx, a.marker, 0); err != nil {
		a.s.cfg.Logger.Info("left to the collector", "attempt", a.marker, "error", err)
	}
}
