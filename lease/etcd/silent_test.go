package etcdlease

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment/store/etcdstore/etcdtest"
	"github.com/slicer-project/slicer/assignment/waittest"
	"github.com/slicer-project/slicer/lease"
)

// silent is a member that takes connections and never says anything, as one whose machine
// hangs.
func silent(t *testing.T) (endpoint string) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var conns []net.Conn
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := lis.Accept()
			if err != nil {
				return
			}
			conns = append(conns, c)
		}
	})
	t.Cleanup(func() {
		lis.Close()
		wg.Wait()
		for _, c := range conns {
			c.Close()
		}
	})
	return lis.Addr().String()
}

func storeAt(t *testing.T, endpoints ...string) *Store {
	cfg := Config{Endpoints: etcdtest.Start(t), Prefix: etcdtest.Prefix(t)}
	s, err := waittest.Answer(lease.ErrUnavailable, func() (*Store, error) { return Open(t.Context(), cfg) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	s.cfg.Endpoints = append(endpoints, s.cfg.Endpoints...)
	return s
}

// However patient a renewer is, a member that says nothing keeps it from none that leads: the
// leases of all sessions would run out meanwhile.
func TestASilentMemberIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	s := storeAt(t, silent(t), silent(t))
	// gRPC itself gives each of the two 20 s.
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	k, _, end, err := s.renewer(ctx, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	defer k.close()
	defer end()
	if !k.leader || k.endpoint != s.cfg.Endpoints[2] {
		t.Errorf("keepalives go to %s, leader %t; want %s", k.endpoint, k.leader, s.cfg.Endpoints[2])
	}
}

// An etcd that does not begin a stream in time is given more time for the next one.
func TestPatienceWithASlowBeginning(t *testing.T) {
	t.Parallel()
	s := storeAt(t)
	k := newRenewer(s, silent(t), 10*time.Millisecond)
	var err error
	if k.client, err = connect(s.cfg, []string{k.endpoint}, &k.conns); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err = k.begin(t.Context()); err == nil {
		t.Fatal("a stream has begun")
	}
	if p := next(answerWithin, time.Second, err); p != 2*answerWithin {
		t.Errorf("after %v the next has %s, want %s", err, p, 2*answerWithin)
	}
}
