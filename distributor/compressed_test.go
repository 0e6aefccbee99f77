package distributor

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/distributor/fanout"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// Subscribers that read compressed wholes are sent such, compressed once; others, and those
// that have refused one, are sent them as they are. Deltas are the same for all.
func TestCompressed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		f := n.assigner(t, "a1", assigner1) // there before the Distributor, which would wait otherwise
		reg := prometheus.NewRegistry()
		d, err := newDistributor(Config{ID: "d1", Assigners: []string{assigner1}, DialOptions: n.dialOptions(), Registerer: reg}, n.lookup)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		n.serve(t, server, func(s *grpc.Server) { d.Register(s) }, ServerOptions()...)
		w := &world{t: t, n: n, d: d, cc: n.connect(t, server)}
		first := firstOf(t, testJob, testStore, baseGen, 2000)
		f.set(first)
		reads := func(id string) *slicerv1.Hello {
			h := clerkHello(id)
			h.Compressed = true
			return h
		}
		subs := []*fakeSub{
			subscribe(t, w.cc, clerkHello("old"), nil),
			subscribe(t, w.cc, reads("new"), nil),
			subscribe(t, w.cc, reads("newer"), nil),
			subscribe(t, w.cc, reads("wary"), nil, func(s *fakeSub) { s.refuse = 1 }),
		}
		whole, err := wire.EncodeAssignment(first)
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range subs {
			same(t, s.holds(), first)
			s.mu.Lock()
			for k, tr := range s.got {
				if compressed := tr.WholeSize != 0; compressed != (i > 0 && k == 0) || compressed && (tr.WholeSize != uint64(len(whole)) || tr.Size >= tr.WholeSize) || !compressed && tr.Size != uint64(len(whole)) {
					t.Errorf("subscriber %d, trailer %d: %v, the whole has %d bytes", i, k, tr, len(whole))
				}
			}
			if want := 1 + i/3; len(s.got) != want {
				t.Errorf("subscriber %d: %d assignments, want %d", i, len(s.got), want)
			}
			s.mu.Unlock()
		}
		for kind, want := range map[string][2]float64{fanout.KindWhole: {1, 2}, fanout.KindCompressed: {1, 3}} {
			if made, sent := value(t, reg, "slicer_distributor_encodes_total", kind), value(t, reg, "slicer_distributor_updates_total", kind); made != want[0] || sent != want[1] {
				t.Errorf("%s: %v encodings, sent %v times; want %v", kind, made, sent, want)
			}
		}
		second := after(t, first, 5)
		f.set(second)
		for i, s := range subs {
			same(t, s.holds(), second)
			s.mu.Lock()
			if last := s.got[len(s.got)-1]; last.Base != int64(first.Generation()) || last.WholeSize != 0 {
				t.Errorf("subscriber %d: %v, want a delta", i, last)
			}
			s.mu.Unlock()
		}
		for _, g := range []assignment.Generation{0, first.Generation()} {
			for _, compressed := range []bool{false, true} {
				stream, err := slicerv1.NewSubscriberServiceClient(w.cc).Fetch(t.Context(), &slicerv1.FetchRequest{Job: testJob, Generation: int64(g), Compressed: compressed})
				if err != nil {
					t.Fatal(err)
				}
				var asm wire.Assembler
				var got *assignment.Assignment
				for got == nil {
					m, err := stream.Recv()
					if err == nil {
						got, err = asm.Take(m, nil)
					}
					if err != nil {
						t.Fatal(err)
					}
					if tr := m.GetTrailer(); tr != nil && tr.WholeSize != 0 != compressed {
						t.Errorf("fetched, compressed %v: %v", compressed, tr)
					}
				}
				want := second
				if g != 0 {
					want = first
				}
				same(t, got, want)
			}
		}
	})
}

// Assigners are told that compressed wholes are read, of bases too. One that is older sends
// them as they are; after one that does not decode the next is not to be compressed.
func TestCompressedFromAssigner(t *testing.T) {
	for _, c := range []struct {
		name   string
		older  bool
		damage int
		want   []bool // whether each whole that the assigner has sent was compressed
	}{
		{"", false, 0, []bool{true}},
		{"older", true, 0, []bool{false}},
		{"damaged", false, 1, []bool{true, false}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				n := newNetwork()
				f := n.assigner(t, "a1", assigner1)
				f.older, f.damage = c.older, c.damage
				first := firstOf(t, testJob, testStore, baseGen, 2000)
				second := after(t, first, 5)
				f.past = map[int64]*assignment.Assignment{int64(first.Generation()): first}
				f.know(testJob)
				w := newWorld(t, n, assigner1)
				var subs []*fakeSub
				for i := range 2 * fanout.BaseHolders {
					subs = append(subs, subscribe(t, w.cc, holding(clerkHello(fmt.Sprint("c", i)), first), first))
				}
				synctest.Wait()
				f.set(second)
				time.Sleep(time.Second) // it asks again, for the whole and for the base
				for _, s := range subs {
					same(t, s.holds(), second)
				}
				var got []bool
				bases := 0
				for _, tr := range f.sent() {
					if compressed := tr.WholeSize != 0; tr.Generation == int64(second.Generation()) {
						got = append(got, compressed)
					} else if bases++; compressed == c.older {
						t.Errorf("a base: %v", tr)
					}
				}
				if !slices.Equal(got, c.want) || bases != 1 {
					t.Errorf("%d bases, and wholes that were compressed: %v; want 1 and %v", bases, got, c.want)
				}
				third := after(t, second, 5)
				f.set(third)
				for _, s := range subs {
					same(t, s.holds(), third)
				}
				if got := f.sent(); len(got) != 0 {
					t.Errorf("%v, want a delta", got)
				}
			})
		})
	}
}

// A Distributor of the second tier is sent compressed wholes, those that others of the first
// tier are sent, too.
func TestCompressedToSecondTier(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		f := n.tieredAssigner(t)
		a := firstOf(t, testJob, testStore, baseGen, 2000)
		f.know(testJob)
		f.set(a)
		d1 := n.node(t, "d1")
		d2 := n.node(t, "d2", "d1")
		reads := clerkHello("c1")
		reads.Compressed = true
		same(t, subscribe(t, d1.cc, reads, nil).holds(), a)
		time.Sleep(time.Second)
		same(t, subscribe(t, d2.cc, clerkHello("c2"), nil).holds(), a)
		for kind, want := range map[string][2]float64{fanout.KindCompressed: {1, 2}, fanout.KindWhole: {0, 0}} {
			made, sent := d1.metric(t, "encodes_total", "kind="+kind), d1.metric(t, "updates_total", "kind="+kind)
			if made != want[0] || sent != want[1] {
				t.Errorf("%s: %v encodings, sent %v times; want %v", kind, made, sent, want)
			}
		}
	})
}
