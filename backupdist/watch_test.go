package backupdist

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/limiter"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/backupdist/protocol"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// As package protocol has them.
const (
	maxRefusals = 3
	idleFor     = 10 * time.Second
)

func TestServesFromTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemStore()
		m.put("web")
		a := assigned(t, nil, "web", 7, 10, 1000)
		m.write(a)
		s, cc := start(t, m)
		c := subscribe(t, cc, hello("web"), nil)
		c.expect(a, "whole")
		if err := s.Ready(); err != nil {
			t.Error(err)
		}
		b := assigned(t, a, "web", 7, 11, 1000)
		m.write(b)
		c.expect(b, "whole", "delta")
		subscribe(t, cc, hello("web"), b).expect(b)
		subscribe(t, cc, hello("web"), a).expect(b, "delta")
		far := assigned(t, b, "web", 7, 50, 1000)
		ahead := subscribe(t, cc, hello("web"), far)
		ahead.expect(far)
		other := assigned(t, nil, "web", 8, 60, 1000)
		m.write(other)
		c.expect(other, "whole", "delta", "whole")
		ahead.expect(other, "whole")
		m.put("empty")
		d := subscribe(t, cc, hello("empty"), nil)
		time.Sleep(time.Minute)
		first := assigned(t, nil, "empty", 8, 5, 3)
		m.write(first)
		d.expect(first, "whole")
		st := d.status
		if st.GetTakesReports() || st.GetMode() != slicerv1.Mode_MODE_AFFINITY || st.GetRepeatMs() != 5000 || st.GetLoadMetric() != "requests" {
			t.Errorf("status %v", st)
		}
	})
}

// What is more than a connection's streams is refused. Another connection has its own.
func TestStreamsOfAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemStore()
		m.put("web")
		a := assigned(t, nil, "web", 7, 10, 1)
		m.write(a)
		f := newFront(t, m)
		cc := f.at("10.0.0.1")
		subs := make([]*sub, limiter.MaxCalls)
		for i := range subs {
			subs[i] = subscribe(t, cc, hello("web"), nil)
		}
		subs[0].expect(a, "whole")
		if c := subscribe(t, cc, hello("web"), nil).code(); c != codes.ResourceExhausted {
			t.Fatalf("%d streams are answered on one connection: the last ends with %s", limiter.MaxCalls+1, c)
		}
		subscribe(t, f.at("10.0.0.1"), hello("web"), nil).expect(a, "whole")
		subs[1].close()
		synctest.Wait()
		subscribe(t, cc, hello("web"), nil).expect(a, "whole")
	})
}

func TestOneAtATimeAndTheNewestNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemStore()
		m.put("web")
		a := assigned(t, nil, "web", 7, 10, 100)
		m.write(a)
		_, cc := start(t, m)
		c := subscribe(t, cc, hello("web"), nil)
		c.expect(a, "whole")
		c.mu.Lock()
		c.silent = true
		c.mu.Unlock()
		for g := assignment.Generation(11); g < 20; g++ {
			a = assigned(t, a, "web", 7, g, 100)
			m.write(a)
			synctest.Wait()
		}
		c.mu.Lock()
		c.silent = false
		held := c.a
		c.mu.Unlock()
		if held.Generation() != 11 {
			t.Errorf("holds %d", held.Generation())
		}
		c.stream.Send(&slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Ack{Ack: &slicerv1.Ack{Generation: 11}}})
		c.expect(a, "whole", "delta", "whole")
		c.mu.Lock()
		c.refuse = 1
		c.mu.Unlock()
		a = assigned(t, a, "web", 7, 20, 100)
		m.write(a)
		c.expect(a, "whole", "delta", "whole", "delta", "whole")
		never := subscribe(t, cc, hello("web"), nil, func(s *sub) { s.refuse = maxRefusals })
		synctest.Wait()
		if len(never.kinds) != maxRefusals {
			t.Errorf("sent %v to one that refuses", never.kinds)
		}
		a = assigned(t, a, "web", 7, 21, 100)
		m.write(a)
		never.expect(a, "whole", "whole", "whole", "whole")
	})
}

func TestUnknownAndDeletedJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemStore()
		s, cc := start(t, m)
		if c := subscribe(t, cc, hello("web"), nil); c.code() != codes.NotFound {
			t.Errorf("an unknown job: %v", c.err)
		}
		m.put("web")
		synctest.Wait()
		c := subscribe(t, cc, hello("web"), nil)
		if c.code() != codes.OK {
			t.Errorf("a job that has been made: %v", c.err)
		}
		m.remove("web")
		if c.code() != codes.NotFound {
			t.Errorf("a deleted job: %v", c.err)
		}
		time.Sleep(2 * idleFor)
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.jobs) != 0 {
			t.Errorf("%d jobs are kept that there are not", len(s.jobs))
		}
	})
}

func TestStoreDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemStore()
		m.put("web")
		m.put("warm")
		a, w := assigned(t, nil, "web", 7, 10, 10), assigned(t, nil, "warm", 7, 10, 10)
		m.write(a)
		m.write(w)
		m.fail(store.ErrUnavailable)
		s, cc := start(t, m)
		time.Sleep(time.Second)
		if err := s.Ready(); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("ready: %v", err)
		}
		began := time.Now()
		c := subscribe(t, cc, hello("web"), nil)
		<-c.done
		if c.code() != codes.Unavailable || time.Since(began) != protocol.Patience {
			t.Errorf("after %s: %v", time.Since(began), c.err)
		}
		m.fail(nil)
		time.Sleep(2 * protocol.RetryMax)
		c = subscribe(t, cc, hello("web"), nil)
		c.expect(a, "whole")
		m.fail(store.ErrUnavailable)
		time.Sleep(time.Hour)
		subscribe(t, cc, hello("web"), nil).expect(a, "whole")
		subscribe(t, cc, hello("warm"), nil).expect(w, "whole") // it was not asked for before
		if err := s.Ready(); err != nil {
			t.Errorf("not ready: %v", err)
		}
		b := assigned(t, a, "web", 7, 11, 10)
		m.write(b)
		m.fail(nil)
		time.Sleep(2 * protocol.RetryMax)
		c.expect(b, "whole", "delta")
		m.fail(fmt.Errorf("%w: /slicer/jobs/x", store.ErrCorrupt))
		bad := subscribe(t, cc, hello("bad"), nil)
		<-bad.done
		if bad.code() != codes.DataLoss || !strings.Contains(bad.err.Error(), "/slicer/jobs/x") {
			t.Errorf("a corrupt record: %v", bad.err)
		}
		c.expect(b, "whole", "delta")
	})
}

func TestJobsWithoutSubscribersAreReadSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemStore()
		m.put("web")
		a := assigned(t, nil, "web", 7, 10, 10)
		m.write(a)
		_, cc := start(t, m)
		synctest.Wait()
		before := m.readCount()
		for range 60 {
			a = assigned(t, a, "web", 7, a.Generation()+1, 10)
			m.write(a)
			time.Sleep(time.Second)
		}
		if n := m.readCount() - before; n < 5 || n > 7 {
			t.Errorf("read %d times in a minute", n)
		}
		a = assigned(t, a, "web", 7, a.Generation()+1, 10)
		m.write(a)
		c := subscribe(t, cc, hello("web"), nil)
		synctest.Wait()
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.a == nil || c.a.Generation() != a.Generation() {
			t.Errorf("holds %v", c.a)
		}
	})
}
