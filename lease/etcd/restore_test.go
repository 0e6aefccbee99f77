package etcdlease_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store/etcdstore/etcdtest"
	"github.com/slicer-project/slicer/assignment/waittest"
	"github.com/slicer-project/slicer/lease"
	etcdlease "github.com/slicer-project/slicer/lease/etcd"
	"github.com/slicer-project/slicer/lease/leasetest"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	restoreJob  = "job"
	restoreKeys = 64
	slicelets   = 4
)

// restoring is a job on an etcd that is to go back: an assigner that changes it
// without end, slicelets with a connection each, and a judge of what they believe.
type restoring struct {
	t       *testing.T
	ttl     time.Duration
	within  time.Duration // changes go on
	cluster *etcdtest.Cluster
	relays  []*etcdtest.Relay // to its members
	late    []*etcdtest.Relay // those of the last slicelet
	newest  atomic.Int64      // generation that was asked for
	inForce atomic.Int64      // generation of the last change that was completed
	assigns *etcdlease.Store

	mu    sync.Mutex
	parts [slicelets]slicelet

	judged sync.Mutex
	both   map[assignment.SliceKey]time.Duration // keys with two owners, and for how long
	owners atomic.Int64                          // keys with an owner, as last looked
}

type slicelet struct {
	*lease.Job
	store *etcdlease.Store
}

func newRestoring(t *testing.T, cluster *etcdtest.Cluster, ttl, within time.Duration) *restoring {
	r := &restoring{t: t, ttl: ttl, within: within, cluster: cluster, both: map[assignment.SliceKey]time.Duration{}}
	for _, target := range r.cluster.Endpoints() {
		r.relays = append(r.relays, etcdtest.NewRelay(t, target))
		r.late = append(r.late, etcdtest.NewRelay(t, target))
	}
	r.assigns = r.open(r.relays)
	for i := range slicelets {
		r.join(i)
	}
	r.run(r.assign)
	r.run(r.judge)
	r.changesGoOn("at first")
	return r
}

func (r *restoring) open(relays []*etcdtest.Relay) *etcdlease.Store {
	var endpoints []string
	for _, relay := range relays {
		endpoints = append(endpoints, relay.Address())
	}
	return openAt(r.t, etcdlease.Config{Endpoints: endpoints})
}

// target leads the way to a member elsewhere, nowhere if there is no address.
func (r *restoring) target(i int, address string) {
	r.relays[i].Target(address)
	r.late[i].Target(address)
}

// run runs f beside the test, until it ends.
func (r *restoring) run(f func(ctx context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); f(ctx) }()
	r.t.Cleanup(func() { cancel(); <-done })
}

// join starts the slicelet that is the i-th task.
func (r *restoring) join(i int) {
	r.t.Helper()
	relays := r.relays
	if i == slicelets-1 {
		relays = r.late
	}
	st := r.open(relays)
	reader, err := lease.NewReader(lease.Config{Readers: st, TTL: r.ttl})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { reader.Close() }) // etcd may be gone, and what it held with it
	part, err := reader.Join(lease.JobConfig{Job: restoreJob, Task: leasetest.TaskName(i), Incarnation: leasetest.Incarnation(i),
		Fetch: func(_ context.Context, g assignment.Generation) (*assignment.Assignment, error) {
			return leasetest.Assignment(restoreJob, g, slicelets)
		}})
	if err != nil {
		r.t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.parts[i] = slicelet{part, st}
}

// kill ends the slicelet that is the i-th task without a word to etcd.
func (r *restoring) kill(i int) {
	r.mu.Lock()
	killed := r.parts[i]
	r.parts[i] = slicelet{}
	r.mu.Unlock()
	killed.store.Close()
}

func (r *restoring) now() [slicelets]slicelet {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.parts
}

// assign changes the job again and again. Numbers of generations only grow, since
// they follow the clock.
func (r *restoring) assign(ctx context.Context) {
	for ctx.Err() == nil {
		if err := r.tenure(ctx); err != nil && ctx.Err() == nil {
			r.t.Logf("assigner: %v", err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (r *restoring) tenure(ctx context.Context) error {
	opening, cancel := context.WithTimeout(ctx, r.ttl)
	defer cancel()
	w, err := r.assigns.OpenWriter(opening, r.ttl)
	if err != nil {
		return err
	}
	tenure, end := context.WithCancel(ctx)
	var renewed sync.WaitGroup
	defer renewed.Wait()
	defer end()
	renewed.Go(func() {
		defer end()
		for tenure.Err() == nil {
			call, cancel := context.WithTimeout(tenure, r.ttl/3)
			err := w.KeepAlive(call)
			cancel()
			if errors.Is(err, lease.ErrLost) {
				return
			}
			time.Sleep(r.ttl / 6)
		}
	})
	var token lease.Token
	for err = lease.ErrHeld; errors.Is(err, lease.ErrHeld) && tenure.Err() == nil; time.Sleep(10 * time.Millisecond) {
		token, err = w.Lead(tenure, restoreJob)
	}
	for err == nil {
		var st lease.State
		st, err = lease.Advance(tenure, w, lease.Change{Job: restoreJob, Token: token, Wanted: assignment.Generation(r.newest.Add(1)), Wait: r.ttl})
		r.inForce.Store(max(r.inForce.Load(), int64(st.Guard.Generation)))
		time.Sleep(30 * time.Millisecond)
	}
	return err
}

// judge asks all slicelets for all keys, again and again. The one that says yes is asked again
// after the others: only one that owns the key at both ends of the time in which another says
// yes owns it together with that one.
func (r *restoring) judge(ctx context.Context) {
	for ctx.Err() == nil {
		began, parts, owned := time.Now(), r.now(), int64(0)
		var both []assignment.SliceKey
		for i := range restoreKeys {
			k := assignment.SliceKey(i) * (assignment.KeyspaceEnd / restoreKeys)
			found, twice := false, false
			for n, p := range parts {
				if p.Job == nil || !p.Owns(k) {
					continue
				}
				found = true
				for _, other := range parts[n+1:] {
					twice = twice || other.Job != nil && other.Owns(k) && p.Owns(k)
				}
			}
			if found {
				owned++
			}
			if twice {
				both = append(both, k)
			}
		}
		r.owners.Store(owned)
		time.Sleep(time.Millisecond)
		r.judged.Lock()
		for _, k := range both {
			r.both[k] += time.Since(began)
		}
		r.judged.Unlock()
	}
}

// changesGoOn waits until three more changes are completed and every key has an
// owner, and returns how long that has taken.
func (r *restoring) changesGoOn(when string) time.Duration {
	r.t.Helper()
	began := time.Now()
	for last, n := r.inForce.Load(), 0; n < 3 || r.owners.Load() < restoreKeys; time.Sleep(2 * time.Millisecond) {
		if g := r.inForce.Load(); g != last {
			last = g
			n++
		}
		if time.Since(began) > r.within {
			r.t.Errorf("%s: %d changes and %d of %d keys with an owner in %s", when, n, r.owners.Load(), restoreKeys, r.within)
			break
		}
	}
	return time.Since(began)
}

// verdict fails the test if a key had two owners.
func (r *restoring) verdict() {
	r.t.Helper()
	r.judged.Lock()
	defer r.judged.Unlock()
	longest := time.Duration(0)
	for _, d := range r.both {
		longest = max(longest, d)
	}
	if len(r.both) > 0 {
		r.t.Errorf("%d of %d keys had two owners, one of them for %s", len(r.both), restoreKeys, longest.Round(time.Millisecond))
	}
}

// revision of an etcd, as a client sees it.
func revision(t *testing.T, c *etcdtest.Cluster) int64 {
	t.Helper()
	resp, err := client(t, c).Get(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	return resp.Header.Revision
}

func client(t *testing.T, c *etcdtest.Cluster) *clientv3.Client {
	t.Helper()
	cl, err := clientv3.New(clientv3.Config{Endpoints: c.Endpoints(), DialTimeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cl.Close() })
	return cl
}

// carry writes until the revision is far past what it was when the backup was
// made, and past what it is where the clients are.
func (r *restoring) carry(c *etcdtest.Cluster) { carry(r.t, c, r.cluster) }

// carry writes to an etcd until its revision is far past another's.
func carry(t *testing.T, c, other *etcdtest.Cluster) {
	t.Helper()
	past := revision(t, other) + 100
	cl := client(t, c)
	for n := revision(t, c); n <= past; n++ {
		if _, err := cl.Put(t.Context(), "x", ""); err != nil {
			t.Fatal(err)
		}
	}
}

// compact leaves nothing of what was before.
func compact(t *testing.T, c *etcdtest.Cluster) {
	if _, err := client(t, c).Compact(t.Context(), revision(t, c)); err != nil {
		t.Fatal(err)
	}
}

// goingBack is one way for etcd to go back.
type goingBack struct {
	// restore makes what the second etcd has on disk from the first, which runs; nil
	// copies what that has, stopped.
	restore func(r *restoring, restored *etcdtest.Cluster)
	forced  bool                                           // --force-new-cluster of a member that has been cut off; else a restored backup
	before  func(r *restoring, restored *etcdtest.Cluster) // the clients are back
	restart bool                                           // a slicelet is started anew
}

func (c goingBack) test(t *testing.T, ttl, within time.Duration) {
	members := 1
	if c.forced {
		members = 3
	}
	cluster := etcdtest.NewCluster(t, members)
	restored := cluster
	if !c.forced {
		restored = cluster.Another(t)
	}
	r := newRestoring(t, cluster, ttl, within)
	last := members - 1
	if c.restore != nil {
		c.restore(r, restored)
	} else {
		r.target(last, "")
		r.cluster.Stop(last)
	}
	if !c.forced && c.restore == nil {
		r.cluster.Copy(t, restored)
		r.cluster.Restart(t, 0)
		r.target(0, r.cluster.Endpoints()[0])
	}
	// What follows is lost: changes, and the session of a slicelet.
	r.kill(0)
	r.join(0)
	r.changesGoOn("after the backup")
	if !c.forced {
		restored.Restart(t, 0)
	}
	down := time.Now()
	for i := range members {
		r.target(i, "")
	}
	if !c.forced && c.before != nil {
		c.before(r, restored)
	}
	if c.forced {
		for i := range last {
			r.cluster.Stop(i)
		}
		r.cluster.RestartAlone(t, last)
		if c.before != nil {
			c.before(r, r.cluster)
		}
	}
	if c.restart {
		r.kill(1)
	}
	for i := range members {
		r.relays[i].Target(restored.Endpoints()[last])
	}
	up := time.Since(down)
	// The others go on without the last slicelet, which believes in what it held.
	time.Sleep(ttl / 5)
	for i := range members {
		r.late[i].Target(restored.Endpoints()[last])
	}
	if c.restart {
		r.join(1)
	}
	took := r.changesGoOn("after it went back")
	t.Logf("etcd was away for %s; three changes later, and with an owner for every key, it is %s", up.Round(time.Millisecond), took.Round(time.Millisecond))
	r.verdict()
}

// etcd goes back to an earlier state while slicelets and an assigner live, and is
// written to until its revision has passed the old one. The other ways have the
// build tag system, and there changes go on within 10 s.
func TestStoreGoesBack(t *testing.T) {
	t.Parallel()
	goingBack{before: (*restoring).carry}.test(t, 2*time.Second, waittest.Patience)
}
