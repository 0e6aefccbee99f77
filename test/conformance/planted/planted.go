// Package planted is a small slicelet and a small clerk, made to try the conformance kit: they keep
// the protocol, and each can be told to break it in one way (Faults), which a check has to find. They
// share decoders and the order of slices with the product, and none of the rest. They do not have
// what is optional: cache files, starting tasks, listeners.
package planted

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/grpc"

	"github.com/slicer-project/slicer/assignment"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"github.com/slicer-project/slicer/test/conformance/line"
)

// Serve is a driver for it. faults has the name of one fault, or nothing.
func Serve(role string, faults []string, in io.Reader, out io.Writer) error {
	p := &subscriber{slicelet: role == "slicelet", incarnation: rand.Uint64() | 1, state: slicerv1.TaskState_TASK_STATE_RUNNING, reportNow: make(chan struct{}, 1)}
	for _, f := range faults {
		if !slices.ContainsFunc(Faults(role), func(known Fault) bool { return known.Name == f }) {
			return fmt.Errorf("fault %q of a %s is not known", f, role)
		}
		p.fault = f
	}
	defer p.close()
	return line.Serve(in, out, p.do)
}

// subscriber is a slicelet or a clerk.
type subscriber struct {
	slicelet    bool
	fault       string
	cfg         line.Request
	incarnation uint64
	reportNow   chan struct{} // of capacity 1

	cancel context.CancelFunc
	wg     sync.WaitGroup
	leases *leases          // nil without any
	conn   *grpc.ClientConn // to where they are had

	mu        sync.Mutex
	held      *assignment.Assignment
	status    *slicerv1.Status // nil while there is none
	condition []*slicerv1.TaskCondition
	index     *uint32
	state     slicerv1.TaskState
	sequence  uint64
	heldOff   bool // the assignment in hand is not in use yet
	load      load
	stopBack  context.CancelFunc // nil while no Backup Distributor is used
}

func (p *subscriber) has(fault string) bool { return p.fault == fault }

func (p *subscriber) close() {
	if p.cancel != nil {
		p.cancel()
	}
	p.wg.Wait()
	if p.conn != nil {
		_ = p.conn.Close()
	}
}

func (p *subscriber) do(q line.Request) (r line.Reply, err error) {
	if q.Op == "start" {
		return r, p.start(q)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch q.Op {
	case "state":
		if p.held != nil {
			r.Generation = int64(p.held.Generation())
		}
		r.Drained = p.drainedLocked()
	case "hash":
		for _, k := range q.Keys {
			r.SliceKeys = append(r.SliceKeys, p.hash(k).String())
		}
	case "owns":
		for _, k := range q.Keys {
			r.Owned = append(r.Owned, p.ownsLocked(p.hash(k)))
		}
	case "handle":
		p.load.count(p.hash(q.Key), float64(q.N), p.ownsLocked(p.hash(q.Key)))
	case "drain":
		p.state = slicerv1.TaskState_TASK_STATE_DRAINING
		if !p.has("drain-untold") {
			notify(p.reportNow)
		}
	case "lookup":
		for _, k := range q.Keys {
			r.Owners = append(r.Owners, p.ownersLocked(p.hash(k)))
		}
	case "pick":
		r.Picked = make(map[string]int)
		for range q.N {
			r.Picked[p.pickLocked(p.hash(q.Key))]++
		}
	case "close":
		p.mu.Unlock()
		p.close()
		p.mu.Lock()
	default:
		err = line.ErrUnsupported
	}
	return r, err
}

func (p *subscriber) start(q line.Request) error {
	if q.Starting {
		return line.ErrUnsupported
	}
	p.cfg = q
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	p.load.since = time.Now()
	if len(q.Leases) > 0 {
		var err error
		if p.conn, err = dial(q.Leases[0]); err != nil {
			return err
		}
		p.leases = &leases{p: p, client: slicerv1.NewLeaseServiceClient(p.conn), hands: map[assignment.Generation]*assignment.Assignment{}}
		p.wg.Go(func() { p.leases.hold(ctx) })
	}
	groups := [][]string{q.Distributors}
	if p.has("two-streams") {
		groups = nil
		for _, addr := range q.Distributors {
			groups = append(groups, []string{addr})
		}
	}
	for _, g := range groups {
		p.wg.Go(func() { p.follow(ctx, g, false) })
	}
	return nil
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (p *subscriber) hash(key string) assignment.SliceKey {
	h := xxhash.Sum64String(key)
	if p.has("other-hash") {
		return assignment.SliceKey(h &^ (1 << 63))
	}
	return assignment.SliceKey(h >> 1)
}

// usedLocked is the assignment to go by, nil if there is none.
func (p *subscriber) usedLocked() *assignment.Assignment {
	if p.heldOff {
		return nil
	}
	return p.held
}

// ownsLocked reports whether the task owns a key.
func (p *subscriber) ownsLocked(k assignment.SliceKey) bool {
	a := p.usedLocked()
	switch {
	case a == nil || p.status == nil:
		return false
	case p.leases != nil && p.status.GetMode() == slicerv1.Mode_MODE_CONSISTENT:
		return p.leases.ownsLocked(k)
	case p.status.GetMode() != slicerv1.Mode_MODE_AFFINITY && !p.has("no-lease"):
		return false
	}
	return p.mine(a.Lookup(k))
}

// mine reports whether the task is among the owners of a slice.
func (p *subscriber) mine(owners assignment.Replicas) bool {
	for t := range owners.All() {
		if t.Name == p.cfg.Task && (t.Incarnation == p.incarnation || p.has("any-incarnation")) {
			return true
		}
	}
	return false
}

// drainedLocked reports whether a drain has ended.
func (p *subscriber) drainedLocked() bool {
	if p.held == nil || p.state != slicerv1.TaskState_TASK_STATE_DRAINING {
		return false
	}
	for _, owners := range p.held.All() {
		if p.mine(owners) {
			return false
		}
	}
	return p.has("drained-early") || p.status.GetConvergedGeneration() >= int64(p.held.Generation())
}

// ownersLocked are the tasks that own a key.
func (p *subscriber) ownersLocked(k assignment.SliceKey) []string {
	names := []string{}
	a := p.usedLocked()
	if a == nil {
		return names
	}
	i := a.Find(k)
	if p.has("end-inclusive") && i > 0 && a.Slice(i).Start == k {
		i--
	}
	for t := range a.Replicas(i).All() {
		names = append(names, t.Name)
	}
	if p.has("one-replica") {
		names = names[:1]
	}
	return names
}

// pickLocked is the task that a request goes to: an owner, rather one that does not drain.
func (p *subscriber) pickLocked(k assignment.SliceKey) string {
	owners := p.ownersLocked(k)
	if len(owners) == 0 {
		return ""
	}
	drains := func(name string) bool {
		pos, _ := p.held.Position(name)
		return slices.ContainsFunc(p.condition, func(c *slicerv1.TaskCondition) bool {
			return c.GetDraining() && c.GetTask() == name && c.GetIncarnation() == p.held.Task(pos).Incarnation
		})
	}
	if rest := slices.DeleteFunc(slices.Clone(owners), drains); len(rest) > 0 && !p.has("sends-to-draining") {
		owners = rest
	}
	if p.has("first-replica") {
		return owners[0]
	}
	return owners[rand.IntN(len(owners))]
}

// load is what was handled since the last report.
type load struct {
	since            time.Time
	counts           map[assignment.SliceKey]float64
	total, misrouted float64
}

func (l *load) count(k assignment.SliceKey, n float64, owned bool) {
	if l.total += n; !owned {
		l.misrouted += n
		return
	}
	if l.counts == nil {
		l.counts = make(map[assignment.SliceKey]float64)
	}
	l.counts[k] += n
}

// reportLocked is the next one.
func (p *subscriber) reportLocked(now time.Time) *slicerv1.Report {
	if !p.has("one-sequence") || p.sequence == 0 {
		p.sequence++
	}
	r := &slicerv1.Report{Sequence: p.sequence, State: p.state}
	if p.has("drain-untold") {
		r.State = slicerv1.TaskState_TASK_STATE_RUNNING
	}
	secs := now.Sub(p.load.since).Seconds()
	if p.held == nil || secs <= 0 {
		return r
	}
	unit := 1 / secs
	if p.has("counts") {
		unit = 1
	}
	l := &slicerv1.LoadReport{Generation: int64(p.held.Generation()), WindowSeconds: secs, Parts: 1, TotalRate: float32(p.load.total * unit)}
	if !p.has("misrouted-untold") {
		l.MisroutedRate = float32(p.load.misrouted * unit)
	}
	end := assignment.SliceKey(0)
	add := func(s assignment.Slice) {
		n := 0.
		for k, c := range p.load.counts {
			if s.Contains(k) {
				n += c
			}
		}
		l.RangeSkip, l.RangeWidth, l.Rate = append(l.RangeSkip, uint64(s.Start-end)), append(l.RangeWidth, s.Width()), append(l.Rate, float32(n*unit))
		end = s.End
	}
	if p.has("whole-space") {
		add(assignment.Keyspace)
	} else {
		for s, owners := range p.held.All() {
			if p.mine(owners) {
				add(s)
			}
		}
	}
	r.Load = l
	p.load = load{since: now}
	return r
}
