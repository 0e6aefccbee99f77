package distributor

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/distributor/fanout"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// fetch is a client's Fetch.
func fetch(t *testing.T, cc *grpc.ClientConn, job string, g assignment.Generation) (*assignment.Assignment, error) {
	t.Helper()
	stream, err := slicerv1.NewSubscriberServiceClient(cc).Fetch(t.Context(), &slicerv1.FetchRequest{Job: job, Generation: int64(g)})
	if err != nil {
		t.Fatal(err)
	}
	var asm wire.Assembler
	for {
		m, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		if c := m.GetChunk(); c != nil {
			if err := asm.Add(c); err != nil {
				t.Fatal(err)
			}
		} else {
			return asm.Finish(m.GetTrailer(), nil)
		}
	}
}

func TestFetch(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		w := newWorld(t, n, assigner1)
		expect := func(what, job string, g assignment.Generation, want *assignment.Assignment, code codes.Code) {
			t.Helper()
			got, err := fetch(t, w.cc, job, g)
			if status.Code(err) != code {
				t.Errorf("%s: %v, want %v", what, err, code)
			}
			if want != nil {
				same(t, got, want)
			}
		}
		began := time.Now()
		expect("no assigner", testJob, 0, nil, codes.Unavailable)
		if d := time.Since(began); d != fanout.Patience {
			t.Errorf("unavailable after %s", d)
		}
		f := n.assigner(t, "a1", assigner1)
		time.Sleep(2 * retryMax)
		expect("unknown", testJob, 0, nil, codes.NotFound)
		a := firstOf(t, testJob, testStore, baseGen, 70000) // several chunks
		f.know(testJob)
		time.Sleep(fanout.UnknownFor)
		expect("no assignment", testJob, 0, nil, codes.NotFound)
		time.AfterFunc(time.Second, func() { f.set(a) })
		expect("soon", testJob, 0, a, codes.OK)
		b := after(t, a, 1)
		f.set(b)
		synctest.Wait()
		expect("newest", testJob, 0, b, codes.OK)
		expect("by number", testJob, b.Generation(), b, codes.OK)
		expect("the one before", testJob, a.Generation(), a, codes.OK)
		expect("one that there was not", testJob, 17, nil, codes.NotFound)
		expect("negative", testJob, -1, nil, codes.InvalidArgument)
		expect("no name", "", 0, nil, codes.InvalidArgument)
	})
}

// A client that does not read what it fetches is not waited for.
func TestFetchNotRead(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		f := n.assigner(t, "a1", assigner1)
		f.set(firstOf(t, testJob, testStore, baseGen, 200000))
		w := newWorld(t, n, assigner1)
		stream, err := slicerv1.NewSubscriberServiceClient(w.cc).Fetch(t.Context(), &slicerv1.FetchRequest{Job: testJob})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		w.d.Close()
		for err == nil {
			_, err = stream.Recv()
		}
		if status.Code(err) != codes.Unavailable {
			t.Errorf("ended with %v", err)
		}
	})
}
