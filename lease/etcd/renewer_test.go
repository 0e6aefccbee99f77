package etcdlease

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slicer-project/slicer/lease"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// line is a stream of keepalives whose other end is the test.
type line struct {
	grpc.ClientStream
	ctx     context.Context
	sent    chan int64
	answers chan *etcdserverpb.LeaseKeepAliveResponse
}

func (l *line) Context() context.Context { return l.ctx }

func (l *line) Send(r *etcdserverpb.LeaseKeepAliveRequest) error {
	select {
	case l.sent <- r.ID:
		return nil
	case <-l.ctx.Done():
		return l.ctx.Err()
	}
}

func (l *line) Recv() (*etcdserverpb.LeaseKeepAliveResponse, error) {
	select {
	case r := <-l.answers:
		return r, nil
	case <-l.ctx.Done():
		return nil, l.ctx.Err()
	}
}

func (l *line) answer(id, ttl int64) {
	l.answers <- &etcdserverpb.LeaseKeepAliveResponse{ID: id, TTL: ttl, Header: &etcdserverpb.ResponseHeader{Revision: 1}}
}

// keeping runs a renewer in a bubble, and returns the error with which it has ended.
func keeping(t *testing.T, test func(t *testing.T, k *renewer, l *line)) (err error) {
	synctest.Test(t, func(t *testing.T) {
		k := newRenewer(&Store{past: newHistory(), log: slog.New(slog.DiscardHandler)}, "member", answerWithin)
		ctx, end := context.WithCancel(t.Context())
		l := &line{ctx: ctx, sent: make(chan int64, 64), answers: make(chan *etcdserverpb.LeaseKeepAliveResponse)}
		var wg sync.WaitGroup
		wg.Go(func() { err = k.run(t.Context(), l, end) })
		test(t, k, l)
		end()
		wg.Wait()
	})
	return err
}

func renewing(k *renewer, id clientv3.LeaseID, within time.Duration) (answer func() (kept, error)) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	var a kept
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer cancel()
		a, err = k.renew(ctx, id)
	}()
	return func() (kept, error) { <-done; return a, err }
}

// An answer is that of the keepalive that it was sent for, even if it is not waited for any more: a
// later renewal of the same lease would count from too late a time.
func TestAnswersAreNotCreditedToLaterRenewals(t *testing.T) {
	keeping(t, func(t *testing.T, k *renewer, l *line) {
		gaveUp := renewing(k, 7, 100*time.Millisecond)
		if _, err := gaveUp(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a renewal without an answer: %v", err)
		}
		second := renewing(k, 7, 10*time.Second)
		time.Sleep(2 * gather)
		synctest.Wait()
		if n := len(l.sent); n != 2 {
			t.Fatalf("%d keepalives for two renewals", n)
		}
		l.answer(7, 99)
		synctest.Wait()
		l.answer(7, 5)
		if a, err := second(); err != nil || a.ttl != 5*time.Second {
			t.Errorf("the second renewal was told %+v, %v; want 5 s, which was its own answer", a, err)
		}
	})
}

// Each keepalive is a renewal that was asked for and is waited for.
func TestNothingIsRenewedByItself(t *testing.T) {
	keeping(t, func(t *testing.T, k *renewer, l *line) {
		time.Sleep(30 * time.Second)
		if n := len(l.sent); n != 0 {
			t.Fatalf("%d keepalives that nothing has asked for", n)
		}
		first := renewing(k, 7, time.Second)
		<-l.sent
		l.answer(7, 5)
		if _, err := first(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if n := len(l.sent); n != 0 {
			t.Errorf("%d keepalives after the one that was asked for", n)
		}
	})
	// A full stream holds up what follows; by then it is not asked for any more.
	keeping(t, func(t *testing.T, k *renewer, l *line) {
		l.sent = make(chan int64)
		held := renewing(k, 7, 900*time.Millisecond)
		time.Sleep(2 * gather) // its Send waits
		gone := renewing(k, 8, 50*time.Millisecond)
		if _, err := gone(); err == nil {
			t.Error("a renewal that was not sent has succeeded")
		}
		if id := <-l.sent; id != 7 {
			t.Errorf("a keepalive of lease %d", id)
		}
		l.answer(7, 5)
		if _, err := held(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		select {
		case id := <-l.sent:
			t.Errorf("a keepalive of lease %d, whose renewal was given up", id)
		case <-time.After(500 * time.Millisecond):
		}
	})
}

// Keepalives that are asked for at about the same time go together, in the order in which they
// were asked for, each to its answer; one that is given up before it is sent is not sent.
func TestKeepalivesGoTogether(t *testing.T) {
	keeping(t, func(t *testing.T, k *renewer, l *line) {
		began := time.Now()
		first := renewing(k, 7, time.Second)
		time.Sleep(gather / 4)
		gone := renewing(k, 8, gather/4)
		time.Sleep(gather / 2)
		last := renewing(k, 9, time.Second)
		synctest.Wait()
		if n := len(l.sent); n != 0 {
			t.Fatalf("%d keepalives after %s", n, time.Since(began))
		}
		if _, err := gone(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("one that was given up: %v", err)
		}
		a, b := <-l.sent, <-l.sent
		if took := time.Since(began); a != 7 || b != 9 || took != gather {
			t.Fatalf("after %s keepalives of %d and %d were sent, want 7 and 9 after %s", took, a, b, gather)
		}
		l.answer(7, 5)
		l.answer(9, 6)
		for i, answer := range []func() (kept, error){first, last} {
			if a, err := answer(); err != nil || a.ttl != time.Duration(5+i)*time.Second {
				t.Errorf("renewal %d was told %+v, %v", i, a, err)
			}
		}
	})
}

// An answer out of order, or none, ends the stream, and all that wait for it.
func TestAStreamThatIsNoGoodEnds(t *testing.T) {
	for name, spoil := range map[string]func(l *line){
		"answer of another lease": func(l *line) { l.answer(8, 5) },
		"no answer":               func(*line) { time.Sleep(2 * answerWithin) },
	} {
		t.Run(name, func(t *testing.T) {
			err := keeping(t, func(t *testing.T, k *renewer, l *line) {
				waits := renewing(k, 7, time.Minute)
				time.Sleep(2 * gather)
				spoil(l)
				if _, err := waits(); !errors.Is(err, lease.ErrUnavailable) {
					t.Errorf("the renewal: %v", err)
				}
			})
			if !errors.Is(err, lease.ErrUnavailable) {
				t.Errorf("the stream has ended with %v", err)
			}
		})
	}
	keeping(t, func(t *testing.T, k *renewer, l *line) {
		synctest.Wait()
		l.answer(7, 5) // to nothing
		<-k.over
	})
}

// An etcd that does not keep up is given more time with each stream that is given up for
// it, so that what a new stream costs it comes less and less often.
func TestPatienceWithASlowEtcd(t *testing.T) {
	late := keeping(t, func(t *testing.T, k *renewer, l *line) {
		_, _ = renewing(k, 7, 3*answerWithin)()
	})
	patience := answerWithin
	for range 10 {
		was := patience
		if patience = next(patience, time.Second, late); patience < min(2*was, answerAtMost) {
			t.Fatalf("after %v it has %s, had %s", late, patience, was)
		}
	}
	if patience != answerAtMost {
		t.Errorf("%s after ten streams, want %s at most", patience, answerAtMost)
	}
	if p := next(patience, time.Second, errors.New("connection reset")); p != patience {
		t.Errorf("%s after another end than that", p)
	}
	if p := next(patience, 2*patientFor, late); p != answerWithin {
		t.Errorf("%s after a stream that has lasted, want %s", p, answerWithin)
	}
}

// Patience from a time in which etcd was slow does not outlast that on the stream itself, but is
// what the slowest answers of late need.
func TestPatienceEnds(t *testing.T) {
	now := time.Now()
	k := newRenewer(&Store{}, "member", answerAtMost)
	k.weighed, k.slowest = now, 3*time.Second
	wait := func(d time.Duration) error {
		k.waiting = []*keepalive{{sent: now.Add(-d)}}
		return k.late(now)
	}
	if err := wait(answerAtMost); err != nil {
		t.Error(err)
	}
	k.slowest = 3 * time.Second
	for _, want := range []time.Duration{6 * time.Second, answerWithin} {
		now = now.Add(patientFor + 1)
		if err := wait(0); err != nil || k.patience != want {
			t.Errorf("%v, and patience %s, want %s", err, k.patience, want)
		}
	}
	if err := wait(2 * answerWithin); !errors.Is(err, errLate) {
		t.Errorf("an answer is missing for %s: %v", 2*answerWithin, err)
	}
}
