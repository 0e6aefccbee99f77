package etcdstore

import (
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment/store/etcdstore/etcdtest"
)

// etcd leaves the stream of a store's watches without an answer, while it answers all
// else. The watch notices that it misses changes, and one that begins waits for no answer.
func TestWatchThatIsSilent(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	direct := open(t, cfg)
	f := etcdtest.NewForwarder(t, cfg.Endpoints[0])
	cfg.Endpoints, cfg.checkInterval = []string{f.Address()}, time.Second
	s := open(t, cfg)
	w, err := s.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	putJob(t, direct, "before")
	names(t, w, "before")

	f.Stick()
	putJob(t, direct, "while", "it", "is", "silent")
	names(t, w, "while", "it", "is", "silent")

	f.Stick()
	late, err := s.Watch(t.Context()) // it begins on the stream that is stuck
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { late.Close() })
	putJob(t, direct, "last")
	names(t, w, "last")
	names(t, late, "before", "while", "it", "is", "silent", "last") // a new one names all jobs
}
