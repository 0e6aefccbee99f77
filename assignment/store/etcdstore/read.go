package etcdstore

import (
	"context"
	"fmt"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/store/internal/record"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// state is what is known of one job: its newest assignment, or that there is
// none, and what a write compares.
type state struct {
	a       *assignment.Assignment // nil if there is none
	head    *record.Head           // nil if there is none
	headRev int64                  // mod revision, 0 if there is none
	gone    []byte                 // tombstone as it is kept
	goneRev int64                  // 0 if there is none
	config  bool                   // the job exists
}

// known returns what the last read or write has left.
func (s *Store) known(job string) state {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.states[job]
}

// learn keeps st unless something newer is known.
func (s *Store) learn(job string, st state) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.headRev >= s.states[job].headRev {
		s.states[job] = st
	}
}

// forget drops what is known of a job of which there is no head.
func (s *Store) forget(job string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.states, job)
	delete(s.overrides, job)
}

// forgetAll drops what is known of all jobs: it is read anew.
func (s *Store) forgetAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.states)
	clear(s.overrides)
}

// Read implements store.Store. Following a job costs one request, and the bytes
// of the deltas since the last Read or Write here.
func (s *Store) Read(ctx context.Context, job string) (*assignment.Assignment, error) {
	st, err := s.load(ctx, job)
	if err != nil {
		return nil, err
	}
	if st.a == nil {
		return nil, fmt.Errorf("assignment of job %s: %w", job, store.ErrNotFound)
	}
	return st.a, nil
}

// load reads a job's state. Several tries are needed when etcd compacts away
// the revision that is read at.
func (s *Store) load(ctx context.Context, job string) (st state, err error) {
	ctx, done, err := s.beginFor(ctx, job)
	if err != nil {
		return st, err
	}
	defer done()
	err = atOneRevision(func() (err error) { st, err = s.loadOnce(ctx, job); return err })
	return st, err
}

func (s *Store) loadOnce(ctx context.Context, job string) (st state, err error) {
	known := s.known(job)
	ops := []clientv3.Op{
		clientv3.OpGet(s.layout.Head(job)),
		clientv3.OpGet(s.layout.Gone(job)),
		clientv3.OpGet(s.layout.Config(job), clientv3.WithKeysOnly()),
		clientv3.OpGet(s.layout.ID()),
	}
	if known.a != nil {
		from := s.layout.Generation(job, known.a.Generation()+1)
		ops = append(ops, clientv3.OpGet(from, clientv3.WithRange(record.After(s.layout.Generations(job))), clientv3.WithLimit(record.MaxSegment)))
	}
	resp, err := s.view(ctx, ops...)
	if err != nil {
		return st, err
	}
	if err := s.sameIdentity(resp, 3); err != nil {
		return st, err
	}
	st.gone, st.goneRev = got(resp, 1)
	_, config := got(resp, 2)
	st.config = config != 0
	var head []byte
	if head, st.headRev = got(resp, 0); st.headRev == 0 {
		s.forget(job)
		return st, nil
	}
	if known.a != nil && known.headRev == st.headRev {
		st.a, st.head = known.a, known.head
		return st, nil
	}
	if st.head, err = s.layout.DecodeHead(job, head); err != nil {
		return st, err
	}
	src := moment{s, resp.Header.Revision}
	followed := false
	// A job that was deleted meanwhile and made anew has nothing to follow.
	if known.a != nil && known.goneRev == st.goneRev {
		tail := resp.Responses[4].GetResponseRange()
		kvs := make([]record.KV, len(tail.Kvs))
		for i, kv := range tail.Kvs {
			kvs[i] = record.KV{Key: string(kv.Key), Value: kv.Value}
		}
		st.a, followed, err = s.layout.Follow(ctx, src, job, st.head, known.a, kvs)
	}
	if err == nil && !followed {
		st.a, err = s.layout.Read(ctx, src, job, st.head, st.head.Generation)
	}
	if err != nil {
		return state{}, err
	}
	s.learn(job, st)
	return st, nil
}

// ReadGeneration implements store.Store.
func (s *Store) ReadGeneration(ctx context.Context, job string, g assignment.Generation) (*assignment.Assignment, error) {
	ctx, done, err := s.beginFor(ctx, job)
	if err != nil {
		return nil, err
	}
	defer done()
	if g <= 0 || g > assignment.MaxGeneration {
		return nil, fmt.Errorf("generation %d of job %s: %w", g, job, store.ErrNotFound)
	}
	var a *assignment.Assignment
	err = atOneRevision(func() (err error) { a, err = s.readGenerationOnce(ctx, job, g); return err })
	return a, err
}

func (s *Store) readGenerationOnce(ctx context.Context, job string, g assignment.Generation) (*assignment.Assignment, error) {
	resp, err := s.client.Get(ctx, s.layout.Head(job))
	if err != nil {
		return nil, s.explain(ctx, err)
	}
	if len(resp.Kvs) == 0 {
		return nil, fmt.Errorf("generation %d of job %s: %w", g, job, store.ErrNotFound)
	}
	if known := s.known(job); known.a != nil && known.headRev == resp.Kvs[0].ModRevision && known.a.Generation() == g {
		return known.a, nil
	}
	head, err := s.layout.DecodeHead(job, resp.Kvs[0].Value)
	if err != nil {
		return nil, err
	}
	return s.layout.Read(ctx, moment{s, resp.Header.Revision}, job, head, g)
}
