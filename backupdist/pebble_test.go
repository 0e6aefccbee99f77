package backupdist

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/store/pebblestore"
	"github.com/slicer-project/slicer/assignment/waittest"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// Many subscribers on real sockets, some of which do not read, while a real store's
// assignments follow one another: those that read end with the newest, and Close does not
// wait for the others.
func TestCrowdOnPebble(t *testing.T) {
	const crowd, stuck, generations = 60, 10, 15
	st, err := pebblestore.Open(t.TempDir(), pebblestore.Config{Timeout: waittest.Patience})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	ctx := t.Context()
	if _, err := st.PutJob(ctx, assignment.JobConfig{Name: "web"}.WithDefaults(), store.NoVersion); err != nil {
		t.Fatal(err)
	}
	write := func(prev *assignment.Assignment) *assignment.Assignment {
		g := assignment.Generation(time.Now().UnixMilli())
		if prev != nil {
			g = max(g, prev.Generation()+1)
		}
		a := assigned(t, prev, "web", st.ID(), g, 2000)
		if err := st.Write(ctx, a); err != nil {
			t.Fatal(err)
		}
		return a
	}
	a := write(nil)
	s, err := New(Config{Store: st})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(ServerOptions()...)
	s.Register(g)
	served := make(chan struct{})
	go func() {
		defer close(served)
		g.Serve(l)
	}()
	defer func() { g.Stop(); <-served }()
	last := make([]chan *assignment.Assignment, crowd)
	for i := range last {
		last[i] = make(chan *assignment.Assignment, 1)
		member(t, l.Addr().String(), fmt.Sprint("c", i), i < stuck, last[i])
	}
	for range generations {
		a = write(a)
	}
	for _, c := range last[stuck:] {
		for deadline := time.After(waittest.Patience); ; {
			select {
			case got := <-c:
				if got.Generation() != a.Generation() {
					continue
				}
				if got.Checksum() != a.Checksum() {
					t.Error("the newest with another checksum")
				}
			case <-deadline:
				t.Error("the newest does not arrive")
			}
			break
		}
	}
	closed := make(chan struct{})
	go func() { s.Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(waittest.Patience):
		t.Error("Close waits for a subscriber that does not read")
	}
}

// member follows the job and puts the newest it holds into held; a stuck one
// says hello and reads nothing.
func member(t *testing.T, address, id string, stuck bool, held chan *assignment.Assignment) {
	cc, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	t.Cleanup(func() { cancel(); <-ended; cc.Close() })
	go func() {
		defer close(ended)
		stream, err := slicerv1.NewSubscriberServiceClient(cc).Watch(ctx)
		if err != nil {
			return
		}
		stream.Send(&slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Hello{Hello: &slicerv1.Hello{
			Job: "web", Role: slicerv1.Role_ROLE_CLERK, ClientId: id,
		}}})
		if stuck {
			<-ctx.Done()
			return
		}
		var asm wire.Assembler
		var base *assignment.Assignment
		for {
			m, err := stream.Recv()
			if err != nil {
				return
			}
			if c := m.GetChunk(); c != nil {
				asm.Add(c)
			} else if tr := m.GetTrailer(); tr != nil {
				a, err := asm.Finish(tr, base)
				if err != nil || base != nil && a.Generation() <= base.Generation() {
					t.Errorf("%s: generation %d: %v", id, tr.Generation, err)
					return
				}
				base = a
				select {
				case <-held:
				default:
				}
				held <- a
				stream.Send(&slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Ack{Ack: &slicerv1.Ack{Generation: tr.Generation}}})
			}
		}
	}()
}
