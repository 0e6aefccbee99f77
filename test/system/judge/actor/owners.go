package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/lease"
	etcdlease "github.com/slicer-project/slicer/lease/etcd"
	"github.com/slicer-project/slicer/lease/remote"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/test/kit/boottime"
	"github.com/slicer-project/slicer/test/system/judge/history"
)

const (
	probeEvery = 20 * time.Millisecond
	loadEvery  = 250 * time.Millisecond
	// shiftEvery is how often other keys become hot, in all processes at once.
	shiftEvery = time.Second
	hotLoad    = 40
)

func runOwners(ctx context.Context, cfg Config, log *history.Log) error {
	store, closeStore, err := openLeases(ctx, cfg)
	if err != nil {
		return err
	}
	defer closeStore()
	var wg sync.WaitGroup
	failed := make(chan error, 2*len(cfg.Addresses))
	conns := &peers{}
	for i, addr := range cfg.Addresses {
		seat := &seat{cfg: cfg, log: log, store: store, peers: conns, task: fmt.Sprintf("%s-%d", cfg.Name, i), addr: addr}
		if _, err := fmt.Sscanf(cfg.Name, "owner-%d", &seat.number); err != nil {
			return fmt.Errorf("name %q: %w", cfg.Name, err)
		}
		seat.number = seat.number*len(cfg.Addresses) + i
		wg.Go(func() {
			if err := seat.run(ctx); err != nil {
				failed <- err
			}
		})
		wg.Go(func() {
			if err := serveRPC(ctx, addr, seat); err != nil {
				failed <- err
			}
		})
	}
	select {
	case err = <-failed:
		return err // main exits, and takes the rest with it
	case <-ctx.Done():
	}
	wg.Wait()
	return nil
}

// openLeases connects to etcd, whenever that answers, or to fronts of it.
func openLeases(ctx context.Context, cfg Config) (lease.Readers, func() error, error) {
	if len(cfg.Fronts) > 0 {
		return openFronts(cfg.Fronts)
	}
	for {
		try, cancel := context.WithTimeout(ctx, 3*time.Second)
		s, err := etcdlease.Open(try, etcdlease.Config{Endpoints: cfg.Etcd, Logger: slog.Default()})
		cancel()
		if err == nil {
			return s, s.Close, nil
		}
		slog.Warn("no lease store yet", "error", err)
		select {
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// openFronts makes a connection to each.
func openFronts(addresses []string) (lease.Readers, func() error, error) {
	var conns []grpc.ClientConnInterface
	end := func() error { return nil }
	for _, a := range addresses {
		conn, err := grpc.NewClient(a, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 2 * time.Second}),
			grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: .2, MaxDelay: time.Second}, MinConnectTimeout: time.Second}))
		if err != nil {
			return nil, nil, err
		}
		conns = append(conns, conn)
		rest := end
		end = func() error { return errors.Join(conn.Close(), rest()) }
	}
	return remote.New(conns...), end, nil
}

// seat is a task's name and address, and one slicelet after the other that has them.
type seat struct {
	cfg        Config
	log        *history.Log
	store      lease.Readers
	peers      *peers
	task, addr string
	number     int // distinct among those of all processes
	now        atomic.Pointer[registers]
}

// Do is a client's request.
func (s *seat) Do(req Request, resp *Response) error {
	if r := s.now.Load(); r != nil {
		r.do(req, resp)
	} else {
		resp.Refused = true
	}
	return nil
}

func (s *seat) run(ctx context.Context) error {
	for n := 0; ctx.Err() == nil; n++ {
		if err := s.live(ctx, fmt.Sprintf("%s/%d.%d", s.task, os.Getpid(), n)); err != nil {
			return err
		}
	}
	return nil
}

// live is one slicelet's life: it ends with ctx, or drained.
func (s *seat) live(ctx context.Context, name string) error {
	// A lease of its own for each slicelet, as if it was the only one in its process.
	reader, err := lease.NewReader(lease.Config{Readers: s.store, TTL: s.cfg.TTL, Logger: slog.Default()})
	if err != nil {
		return err
	}
	sl, err := slicelet.New(slicelet.Config{
		Job: s.cfg.Job, Task: s.task, Address: s.addr, Distributors: s.cfg.Distributors, Backups: s.cfg.Backups,
		Leases: reader, Logger: slog.Default(),
	})
	if err != nil {
		return err
	}
	sl.Listen(listener{log: s.log, name: name})
	s.now.Store(&registers{cfg: s.cfg, log: s.log, name: name, s: sl, peers: s.peers, all: map[string]*held{}})
	life, end := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { s.probe(life, name, sl) })
	if s.cfg.Recycle > 0 {
		timer := time.NewTimer(s.cfg.Recycle/2 + rand.N(s.cfg.Recycle))
		select {
		case <-ctx.Done():
		case <-timer.C:
			drain, cancel := context.WithTimeout(ctx, 5*time.Second)
			if err := sl.Drain(drain); err != nil {
				slog.Warn("drain", "error", err)
			}
			cancel()
		}
		timer.Stop()
	} else {
		<-ctx.Done()
	}
	s.now.Store(nil)
	// What happens while it closes is looked at, too.
	if err := sl.Close(); err != nil {
		slog.Warn("close", "error", err)
	}
	if err := reader.Close(); err != nil {
		slog.Warn("close leases", "error", err)
	}
	end()
	wg.Wait()
	return nil
}

// listener writes down what it is told.
type listener struct {
	log  *history.Log
	name string
}

func (l listener) SlicesChanged(_ context.Context, c slicelet.Change) {
	l.log.Told(history.Told{Owner: l.name, At: boottime.Now(), Arrived: slicesOf(c.Arrived), Departed: slicesOf(c.Departed)})
}

func slicesOf(ranges []slicelet.Range) (out []assignment.Slice) {
	for _, r := range ranges {
		out = append(out, r.Slice)
	}
	return out
}

// probe keeps a handle to every key that is the owner's own, and asks all of
// them again and again. It also offers the load that makes assignments change.
func (s *seat) probe(ctx context.Context, name string, sl *slicelet.Slicelet) {
	keys := append(s.cfg.probes(), s.cfg.registers()...)
	kept := map[string]slicelet.Handle{}
	var usable []assignment.Slice
	every := probeEvery
	if s.cfg.Registers == 0 {
		every = loadEvery / 2 // here only when belief ends is of interest
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	loaded := time.Duration(0)
	for {
		began := boottime.Now()
		var lost []string
		for key, h := range kept {
			if !h.AssignedContinuously() {
				lost = append(lost, key)
			}
		}
		ended := boottime.Now()
		for _, key := range lost {
			delete(kept, key)
			s.log.Lost(name, key)
		}
		if len(keys) > 0 {
			s.log.Held(name, len(kept), began, ended)
		}
		for _, key := range keys {
			if _, ok := kept[key]; ok || !sl.IsAffinitized(key) {
				continue
			}
			began := boottime.Now()
			h := sl.Handle(key)
			ended := boottime.Now()
			if h.Owned() {
				kept[key] = h
				s.log.Took(name, key, h.FencingToken(), began, ended)
			}
		}
		began = boottime.Now()
		set := sl.Slices()
		ended = boottime.Now()
		if !slices.Equal(set, usable) {
			usable = set
			s.log.Set(name, within(keys, set), began, ended)
		}
		if began > loaded+loadEvery {
			loaded = began
			s.offer(sl, kept, began)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// offer says how much load there is: that is what assignments change by.
func (s *seat) offer(sl *slicelet.Slicelet, kept map[string]slicelet.Handle, now time.Duration) {
	if s.cfg.Shift == 0 {
		// A tenth of the keys is hot, others each second.
		for key := range kept {
			sl.ReportLoad(key, s.load(key, now/shiftEvery))
		}
		return
	}
	// A tenth of the tasks is hot, in keys without number, of which none is worth a
	// slice of its own: so every change moves as many keys as it may.
	load := 1.0
	if (s.number+3*int(now/s.cfg.Shift))%10 == 0 {
		load = hotLoad
	}
	for range 1000 {
		if key := strconv.FormatUint(rand.Uint64(), 36); sl.IsAffinitized(key) {
			sl.ReportLoad(key, load)
		}
	}
}

func (s *seat) load(what string, shift time.Duration) float64 {
	h := fnv.New64a()
	fmt.Fprint(h, s.cfg.Seed, what, int64(shift))
	if h.Sum64()%10 == 0 {
		return hotLoad
	}
	return 1
}

func within(keys []string, set []assignment.Slice) (in []string) {
	for _, key := range keys {
		k := assignment.KeyOf(key)
		if slices.ContainsFunc(set, func(s assignment.Slice) bool { return s.Start <= k && k < s.End }) {
			in = append(in, key)
		}
	}
	return in
}
