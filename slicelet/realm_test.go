package slicelet

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/subscriber/subscribertest"
	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/lease/serve"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

const ttl = 5 * time.Second

// realm is a job in consistent mode, in virtual time: a real lease store, a
// Distributor, slicelets with a Reader each, and a test that is the assigner.
type realm struct {
	t      *testing.T
	start  time.Time
	net    *subscribertest.Network
	server *subscribertest.Server
	store  *serve.Store
	w      lease.WriteSession
	token  lease.Token
	// members are by name, in order of index.
	members []*member
	last    *assignment.Assignment
	ttl     time.Duration
}

// member is a task's process.
type member struct {
	name   string
	s      *Slicelet
	reader *lease.Reader
	line   *line
	told   *recorded
	skew   atomic.Int64 // by which its clock is ahead
	rate   float64      // of its clock
	// meanwhile, if set, happens once, while the clock is being read.
	meanwhile atomic.Pointer[func()]
}

func newRealm(t *testing.T, names ...string) *realm {
	t.Helper()
	r := &realm{t: t, start: time.Now(), net: subscribertest.NewNetwork(), ttl: ttl}
	var err error
	if r.store, err = serve.Open(t.Context(), serve.Config{Storage: &storage{}, Clock: r.clock}); err != nil {
		t.Fatal(err)
	}
	if r.w, err = r.store.OpenWriter(t.Context(), lease.MaxTTL); err != nil {
		t.Fatal(err)
	}
	if r.token, err = r.w.Lead(t.Context(), "job"); err != nil {
		t.Fatal(err)
	}
	r.server = startServer(r.net)
	r.server.Say(&slicerv1.Status{TakesReports: true, Mode: slicerv1.Mode_MODE_CONSISTENT})
	for _, n := range names {
		r.members = append(r.members, r.begin(n, nil, nil))
	}
	synctest.Wait()
	return r
}

func (r *realm) clock() time.Duration { return time.Since(r.start) }

// begin starts a process.
func (r *realm) begin(name string, tune func(*member), change func(*Config)) *member {
	r.t.Helper()
	m := &member{name: name, line: &line{Readers: r.store}, told: &recorded{}, rate: 1}
	if tune != nil {
		tune(m)
	}
	var err error
	m.reader, err = lease.NewReader(lease.Config{Readers: m.line, TTL: r.ttl,
		Clock: func() time.Duration {
			if happens := m.meanwhile.Swap(nil); happens != nil {
				(*happens)()
			}
			return time.Duration(m.rate*float64(r.clock())) + time.Duration(m.skew.Load())
		}})
	if err != nil {
		r.t.Fatal(err)
	}
	cfg := Config{Job: "job", Task: name, Address: name + ".example:80", Distributors: []string{distributor},
		DialOptions: r.net.DialOptions(), Leases: m.reader}
	if change != nil {
		change(&cfg)
	}
	if m.s, err = New(cfg); err != nil {
		r.t.Fatal(err)
	}
	m.s.Listen(m.told)
	return m
}

func (r *realm) member(name string) *member {
	for _, m := range r.members {
		if m.name == name {
			return m
		}
	}
	r.t.Fatalf("no member %q", name)
	return nil
}

// put makes an assignment of slices of equal width the newest, owners given by
// the first letter of their names, and distributes it.
func (r *realm) put(owners string) assignment.Generation {
	r.t.Helper()
	var tasks []assignment.Task
	letters := ""
	for i, m := range r.members {
		task := m.s.me
		task.Index = uint32(i)
		tasks = append(tasks, task)
		letters += m.name[:1]
	}
	var pos []uint32
	for _, o := range owners {
		pos = append(pos, uint32(strings.IndexRune(letters, o)))
	}
	g := assignment.Generation(10)
	if r.last != nil {
		g = r.last.Generation() + 10
	}
	r.last = subscribertest.Equal(r.t, r.last, assignment.Header{Job: "job", StoreID: 1, Generation: g}, tasks, pos...)
	r.server.Put(r.last)
	synctest.Wait()
	return g
}

// advance carries the job to the newest assignment.
func (r *realm) advance() {
	r.t.Helper()
	_, err := lease.Advance(r.t.Context(), r.w, lease.Change{Job: "job", Token: r.token, Wanted: r.last.Generation(), Wait: time.Second})
	if err != nil {
		r.t.Fatal(err)
	}
	synctest.Wait()
}

// any reports whether the listener was told anything.
func (r *recorded) any() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.calls) > 0
}

// owners says which task believes in each quarter: - for none.
func (r *realm) owners() string {
	text := ""
	for q := range 4 {
		key, who := keyIn(q, 4), ""
		for _, m := range r.members {
			owned := m.s.IsAffinitized(key)
			h := m.s.Handle(key)
			if h.Owned() != owned || h.AssignedContinuously() != owned || (h.FencingToken() > 0) != owned {
				r.t.Errorf("%s, quarter %d: affinitized %t, handle %+v", m.name, q, owned, h)
			}
			if owned {
				who += m.name[:1]
			}
		}
		if who == "" {
			who = "-"
		}
		text += who
	}
	return text
}

func (r *realm) wantOwners(want string) {
	r.t.Helper()
	synctest.Wait()
	if got := r.owners(); got != want {
		r.t.Errorf("owners are %s, want %s", got, want)
	}
}

func (r *realm) stop() {
	r.t.Helper()
	for _, m := range r.members {
		if err := m.s.Close(); err != nil {
			r.t.Error(err)
		}
		if err := m.reader.Close(); err != nil {
			r.t.Error(err)
		}
	}
	r.server.Stop()
	r.store.Close()
}

// line is the way to the lease store: it can be cut, and slow.
type line struct {
	lease.Readers
	off atomic.Bool
	// delay, if set, is called before a call and before its answer.
	delay func()
	// gate, if set, is called before a claim is acquired.
	gate func(lease.Claim)
}

func (w *line) pass() error {
	if w.delay != nil {
		w.delay()
	}
	if w.off.Load() {
		return fmt.Errorf("%w: cut off", lease.ErrUnavailable)
	}
	return nil
}

func (w *line) OpenReader(ctx context.Context, ttl time.Duration, jobs ...string) (lease.ReadSession, error) {
	if err := w.pass(); err != nil {
		return nil, err
	}
	s, err := w.Readers.OpenReader(ctx, ttl, jobs...)
	return &wired{s, w}, err
}

type wired struct {
	lease.ReadSession
	w *line
}

// there and back again: the call may be lost on either way.
func (s *wired) call(f func() error) error {
	if err := s.w.pass(); err != nil {
		return err
	}
	err := f()
	if lost := s.w.pass(); lost != nil {
		return lost
	}
	return err
}

func (s *wired) KeepAlive(ctx context.Context) error {
	return s.call(func() error { return s.ReadSession.KeepAlive(ctx) })
}

func (s *wired) Acquire(ctx context.Context, job string, c lease.Claim) (seen lease.Seen, ok bool, err error) {
	if s.w.gate != nil {
		s.w.gate(c)
	}
	err = s.call(func() (err error) { seen, ok, err = s.ReadSession.Acquire(ctx, job, c); return err })
	return seen, ok, err
}

func (s *wired) Release(ctx context.Context, job string, c lease.Claim) error {
	return s.call(func() error { return s.ReadSession.Release(ctx, job, c) })
}

func (s *wired) Close(ctx context.Context) error {
	return s.call(func() error { return s.ReadSession.Close(ctx) })
}

// storage keeps a lease store's records.
type storage struct {
	mu      sync.Mutex
	records map[string][]byte
}

func (m *storage) Load(context.Context) (map[string][]byte, error) { return maps.Clone(m.records), nil }

func (m *storage) Put(_ context.Context, records map[string][]byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.records == nil {
		m.records = map[string][]byte{}
	}
	maps.Copy(m.records, records)
	return nil
}
