package leases

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/lease"
	etcdlease "github.com/slicer-project/slicer/lease/etcd"
	"github.com/slicer-project/slicer/lease/leasetest"
	"github.com/slicer-project/slicer/lease/remote"
	"github.com/slicer-project/slicer/test/kit/process"
)

// fleetVariable makes the test's binary a process of many slicelets.
const fleetVariable = "SLICER_TEST_LEASES_FLEET"

// fleetConfig is what such a process is told.
type fleetConfig struct {
	Etcd   []string // to speak to etcd directly; else
	Front  string   // the front's address
	First  int      // the number of the first slicelet
	Number int
	TTL    time.Duration
}

const (
	// atOnce is how many sessions a process opens at a time.
	atOnce = 16
	// perProcess is how many slicelets a process has: each has three connections to etcd, and a
	// process some 20,000 descriptors.
	perProcess = 2500
)

// told is what a fleet answers each line of its input with.
type told struct {
	Renewals int64 // since its start
	Without  int   // slicelets that believe in nothing
}

// fleet is many slicelets of one job, each with connections of its own. It says when all
// believe, and then answers until its input ends.
func fleet(text string) error {
	var cfg fleetConfig
	if err := json.Unmarshal([]byte(text), &cfg); err != nil {
		return err
	}
	var renewals atomic.Int64
	jobs, slots, failed := make([]*lease.Job, cfg.Number), make(chan struct{}, atOnce), make(chan error, cfg.Number)
	var wg sync.WaitGroup
	for i := range jobs {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			var err error
			if jobs[i], err = cfg.join(cfg.First+i, &renewals); err != nil {
				failed <- err
			}
		})
	}
	wg.Wait()
	select {
	case err := <-failed:
		return err
	default:
	}
	out := json.NewEncoder(os.Stdout)
	for in := bufio.NewScanner(os.Stdin); ; {
		t := told{Renewals: renewals.Load()}
		for _, j := range jobs {
			if j.Belief() == nil {
				t.Without++
			}
		}
		if err := out.Encode(t); err != nil || !in.Scan() {
			return err
		}
	}
}

// join makes the i-th slicelet take part, and waits until it believes.
func (cfg fleetConfig) join(i int, renewals *atomic.Int64) (*lease.Job, error) {
	var readers lease.Readers
	if cfg.Front != "" {
		conn, err := grpc.NewClient(cfg.Front, append(remote.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
		if err != nil {
			return nil, err
		}
		readers = remote.New(conn)
	} else {
		for readers == nil {
			st, err := etcdlease.Open(context.Background(), etcdlease.Config{Endpoints: cfg.Etcd})
			switch {
			case err == nil:
				readers = st
			case !errors.Is(err, lease.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded):
				return nil, err
			}
		}
	}
	r, err := lease.NewReader(lease.Config{Readers: counted{readers, renewals}, TTL: cfg.TTL})
	if err != nil {
		return nil, err
	}
	j, err := r.Join(lease.JobConfig{Job: fleetJob, Task: leasetest.TaskName(i), Incarnation: leasetest.Incarnation(i),
		Fetch: func(_ context.Context, g assignment.Generation) (*assignment.Assignment, error) { return ofFleet(g) }})
	for err == nil && j.Belief() == nil {
		time.Sleep(5 * time.Millisecond)
	}
	return j, err
}

const fleetJob = "job"

// ofFleet is an assignment to the first tasks, whatever their number.
var ofFleet = func() func(g assignment.Generation) (*assignment.Assignment, error) {
	var mu sync.Mutex
	cache := map[assignment.Generation]*assignment.Assignment{}
	return func(g assignment.Generation) (*assignment.Assignment, error) {
		mu.Lock()
		defer mu.Unlock()
		if cache[g] == nil {
			a, err := leasetest.Assignment(fleetJob, g, 50)
			if err != nil {
				return nil, err
			}
			cache[g] = a
		}
		return cache[g], nil
	}
}()

// member is a fleet that runs.
type member struct {
	*process.Process
	out *json.Decoder
}

func startFleets(b *testing.B, cfg fleetConfig) (all []member) {
	b.Helper()
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	for left := cfg.Number; left > 0; left -= perProcess {
		cfg.Number = min(left, perProcess)
		text, err := json.Marshal(cfg)
		if err != nil {
			b.Fatal(err)
		}
		p := process.StartPiped(b, fmt.Sprint("fleet-", len(all)), []string{fleetVariable + "=" + string(text)}, self)
		all = append(all, member{p, json.NewDecoder(p.Out)})
		cfg.First += cfg.Number
	}
	for _, m := range all {
		m.listen(b) // until all believe
	}
	return all
}

func (m member) listen(b *testing.B) (t told) {
	b.Helper()
	if err := m.out.Decode(&t); err != nil {
		b.Fatalf("%s: %v: %s", m.Name, err, m.LastWords())
	}
	return t
}

// ask sums up what all fleets tell.
func ask(b *testing.B, all []member) (sum told) {
	b.Helper()
	for _, m := range all {
		if _, err := m.In.Write([]byte("\n")); err != nil {
			b.Fatal(err)
		}
		t := m.listen(b)
		sum.Renewals += t.Renewals
		sum.Without += t.Without
	}
	return sum
}

// counted counts renewals.
type counted struct {
	lease.Readers
	n *atomic.Int64
}

type countedSession struct {
	lease.ReadSession
	n *atomic.Int64
}

func (c counted) OpenReader(ctx context.Context, ttl time.Duration, jobs ...string) (lease.ReadSession, error) {
	s, err := c.Readers.OpenReader(ctx, ttl, jobs...)
	return countedSession{s, c.n}, err
}

func (s countedSession) KeepAlive(ctx context.Context) error {
	s.n.Add(1)
	return s.ReadSession.KeepAlive(ctx)
}
