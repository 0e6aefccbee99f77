package consistent

import (
	"context"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store/etcdstore/etcdtest"
	"github.com/slicer-project/slicer/assignment/waittest"
)

// etcd is put back to what it was before two changes, while an assigner and its
// slicelets live. The assigner's views, its lease and what it waits for are void, and
// it decides anew: the two tasks that had been drained own keys again, and are
// drained again.
func TestAssignerAfterEtcdGoesBack(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.NewCluster(t, 1)
	restored := cluster.Another(t)
	relay := etcdtest.NewRelay(t, cluster.Endpoints()[0])
	f := newFleet(t, 6, []string{relay.Address()}, 5*time.Second)
	f.settled("")
	ctx, cancel := context.WithCancel(t.Context())
	judged := make(chan int, 1)
	go func() { judged <- f.judge(ctx) }()

	relay.Target("")
	cluster.Stop(0)
	cluster.Copy(t, restored)
	cluster.Restart(t, 0)
	relay.Target(cluster.Endpoints()[0])
	restored.Restart(t, 0)
	f.drain(0)
	f.drain(1)

	relay.Target(restored.Endpoints()[0])
	for _, without := range []string{f.draining(2), "task-0"} {
		began, stop := time.Now(), waittest.Starving()
		f.settled(without)
		took, starved := time.Since(began), stop()
		t.Logf("a change is completed %s after etcd was put back; the machine kept this from running for %s", took.Round(time.Millisecond), starved)
		if took > 10*time.Second && starved < time.Second {
			t.Errorf("a change took %s, at most 10 s is promised", took)
		}
	}
	f.drain(3)
	cancel()
	if n := <-judged; n > 0 {
		t.Errorf("%d of 64 keys had two owners", n)
	}
}

// judge asks all slicelets for 64 keys until ctx ends, and returns for how many two
// have said at one time that they own it.
func (f *fleet) judge(ctx context.Context) int {
	both := map[assignment.SliceKey]bool{}
	for ctx.Err() == nil {
		for i := range assignment.SliceKey(64) {
			k := i * (assignment.KeyspaceEnd / 64)
			for n, j := range f.jobs {
				for _, other := range f.jobs[n+1:] {
					// Only what owns the key at both ends of the other's answer owns it together with it.
					if j.Owns(k) && other.Owns(k) && j.Owns(k) {
						both[k] = true
					}
				}
			}
		}
		time.Sleep(time.Millisecond)
	}
	return len(both)
}
