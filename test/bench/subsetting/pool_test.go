package subsetting

import (
	"context"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/clerkgrpc"
	"github.com/slicer-project/slicer/loadbalance/subset"
)

// newPlainFleet has clients that keep the least pool that there can be: a TCP
// connection to each task of the subset.
func newPlainFleet(tb testing.TB, c scale) *fleet {
	var wg sync.WaitGroup
	f := newFleet(tb, c, func(l net.Listener) error {
		for {
			c, err := l.Accept()
			if err != nil {
				return err
			}
			wg.Go(func() {
				_, _ = io.Copy(io.Discard, c) // until the client ends it
				c.Close()
			})
		}
	}, func() {})
	tb.Cleanup(wg.Wait)
	f.client = func(ck *clerk.Clerk) (closer, error) {
		p := startPool(ck, c.size)
		f.pools = append(f.pools, p)
		return p, nil
	}
	return f
}

// pool connects to the subset as soon as the client has an index. Beside it, it
// keeps the tasks that deterministic subsetting would have it connected to.
type pool struct {
	clerk *clerk.Clerk
	conns map[string]net.Conn // by address
	stop  chan struct{}
	wg    sync.WaitGroup

	size   int
	shadow []string     // names
	missed atomic.Int64 // connections that deterministic subsetting would have dropped
}

func startPool(ck *clerk.Clerk, size int) *pool {
	p := &pool{clerk: ck, size: size, conns: make(map[string]net.Conn), stop: make(chan struct{})}
	p.wg.Go(p.run)
	return p
}

func (p *pool) run() {
	for {
		changed := p.clerk.Changed()
		if s := p.clerk.Subset(); s != nil {
			if index, known := s.Index(); known {
				p.follow(s)
				p.imagine(s.Assignment(), index)
			}
		}
		select {
		case <-changed:
		case <-p.stop:
			for _, c := range p.conns {
				c.Close()
				p.clerk.ConnectionClosed(clerk.CloseShutdown)
			}
			return
		}
	}
}

func (p *pool) follow(s *clerk.Subset) {
	before := p.conns
	p.conns = make(map[string]net.Conn, s.Len())
	for _, t := range s.Tasks() {
		c := before[t.Address]
		if delete(before, t.Address); c == nil {
			var err error
			if c, err = net.DialTimeout("tcp", t.Address, 10*time.Second); err != nil {
				continue
			}
			p.clerk.ConnectionOpened(clerk.OpenWarm)
		}
		p.conns[t.Address] = c
	}
	alive := make(map[string]bool)
	for _, t := range s.Assignment().Tasks() {
		alive[t.Address] = t.State != assignment.TaskDead
	}
	for address, c := range before {
		c.Close()
		if alive[address] {
			p.clerk.ConnectionClosed(clerk.CloseLeftSubset)
		} else {
			p.clerk.ConnectionClosed(clerk.CloseTaskGone)
		}
	}
}

// imagine counts what deterministic subsetting would drop at the tasks that stay.
func (p *pool) imagine(a *assignment.Assignment, index int) {
	var present []int
	names := make(map[int]string)
	for _, t := range a.Tasks() {
		if t.State != assignment.TaskDead {
			present, names[int(t.Index)] = append(present, int(t.Index)), t.Name
		}
	}
	b, err := subset.Present(present)
	if err != nil {
		panic(err)
	}
	next, err := deterministic.Append(nil, subset.Shape{Backends: b, Size: p.size}, index)
	if err != nil {
		panic(err)
	}
	before := p.shadow
	p.shadow = nil
	for _, i := range next {
		p.shadow = append(p.shadow, names[i])
	}
	for _, name := range before {
		pos, ok := a.Position(name)
		if ok && a.Task(pos).State != assignment.TaskDead && !slices.Contains(p.shadow, name) {
			p.missed.Add(1)
		}
	}
}

var deterministic = subset.DeterministicBalanced{}

func (p *pool) Close() error {
	close(p.stop)
	p.wg.Wait()
	return nil
}

// newGRPCFleet has clients of package clerkgrpc. Each asks some task of its subset now and then,
// or it would close its connections.
func newGRPCFleet(tb testing.TB, c scale) *fleet {
	g := grpc.NewServer()
	f := newFleet(tb, c, g.Serve, g.Stop)
	f.client = func(ck *clerk.Clerk) (closer, error) {
		conn, err := grpc.NewClient("slicer:///"+job, append(
			clerkgrpc.DialOptions(clerkgrpc.Config{Shared: ck, Keyless: clerkgrpc.AnyTask, IdleClose: time.Second}),
			grpc.WithTransportCredentials(insecure.NewCredentials()))...)
		if err != nil {
			return nil, err
		}
		conn.Connect()
		a := &asking{ClientConn: conn}
		a.ctx, a.end = context.WithCancel(context.Background())
		a.wg.Go(a.ask)
		return a, nil
	}
	return f
}

// asking is a client that asks.
type asking struct {
	*grpc.ClientConn
	ctx context.Context
	end context.CancelFunc
	wg  sync.WaitGroup
}

func (a *asking) ask() {
	every := time.NewTicker(250 * time.Millisecond)
	defer every.Stop()
	for {
		select {
		case <-every.C:
			// There is no such method: that is an answer.
			_ = a.Invoke(a.ctx, "/none/None", &emptypb.Empty{}, &emptypb.Empty{})
		case <-a.ctx.Done():
			return
		}
	}
}

func (a *asking) Close() error {
	a.end()
	a.wg.Wait()
	return a.ClientConn.Close()
}
