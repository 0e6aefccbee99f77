package sidecar

import (
	"context"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/assignment/waittest"
	"github.com/slicer-project/slicer/test/kit/process"
	"github.com/slicer-project/slicer/test/slicertest"
)

// patience bounds waits; nothing is asserted on it.
const patience = waittest.Patience

// rpcServer is a gRPC server that answers every RPC with the fencing token and the generation that came with
// it.
func rpcServer(t *testing.T) (address string) {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		var in wrapperspb.StringValue
		if err := s.RecvMsg(&in); err != nil {
			return err
		}
		md, _ := metadata.FromIncomingContext(s.Context())
		return s.SendMsg(wrapperspb.String(strings.Join(md["slicer-fencing-token"], ",") + " " + strings.Join(md["slicer-generation"], ",")))
	}))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(lis) // until it is stopped
	}()
	t.Cleanup(func() {
		srv.Stop()
		<-done
	})
	return lis.Addr().String()
}

// caller sends RPCs to one sidecar.
type caller struct {
	process.Server
	conn *grpc.ClientConn
}

func newCaller(t *testing.T, p process.Server) *caller {
	t.Helper()
	conn, err := grpc.NewClient(p.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &caller{p, conn}
}

// call sends an RPC for the key ada, and returns what came to the server with it.
func (c *caller) call(ctx context.Context) (token, generation int64, err error) {
	var out wrapperspb.StringValue
	err = c.conn.Invoke(metadata.AppendToOutgoingContext(ctx, "slicer-key", "ada"), "/bank.Accounts/Get", wrapperspb.String("ada"), &out)
	if err != nil {
		return 0, 0, err
	}
	t, g, _ := strings.Cut(out.GetValue(), " ")
	if token, err = strconv.ParseInt(t, 10, 64); err == nil {
		generation, err = strconv.ParseInt(g, 10, 64)
	}
	return token, generation, err
}

// serves waits until RPCs are served.
func (c *caller) serves(t *testing.T) (token int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		token, generation, err := c.call(ctx)
		switch {
		case err == nil && (token <= 0 || generation < token):
			t.Fatalf("token %d, generation %d", token, generation)
		case err == nil:
			return token
		case ctx.Err() != nil:
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (c *caller) wantRefused(t *testing.T, when string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if token, _, err := c.call(ctx); status.Code(err) != codes.Unavailable {
		t.Errorf("%s: token %d, %v, want UNAVAILABLE", when, token, err)
	}
}

// TestConsistentGRPC: in consistent mode an RPC is served by the sidecar of its key's owner alone, with
// the fencing token and the generation in its metadata, and one that was stopped for longer than its
// lease serves none that has moved meanwhile.
func TestConsistentGRPC(t *testing.T) {
	process.Build(t, "slicerproxy", "github.com/slicer-project/slicer/cmd/slicerproxy")
	env := slicertest.New(t)
	env.Consistent("bank")
	at := env.Loopback()
	sidecar := func(task string) *caller {
		return newCaller(t, process.Serve(t, exec.Command(process.Program("slicerproxy"), "--grpc", "--job=bank", "--task="+task, "--upstream="+rpcServer(t),
			"--distributors="+at, "--leases="+at, "--lease-time=1s", "--listen=127.0.0.1:0", "--http=", "--log-format=json", "--drain-timeout=1s"), process.Listens))
	}
	env.Assign("bank", slicertest.Spread("a"))
	a, b := sidecar("a"), sidecar("b")
	first := a.serves(t)
	b.wantRefused(t, "the key is a's")
	env.Assign("bank", slicertest.Spread("b"))
	second := b.serves(t)
	a.wantRefused(t, "the key has moved to b")
	if second <= first {
		t.Errorf("b's token is %d, a's was %d", second, first)
	}
	release := env.Hold("b")
	if err := syscall.Kill(b.Pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	env.Assign("bank", slicertest.Spread("a")) // returns when b's lease has run out
	third := a.serves(t)
	if err := syscall.Kill(b.Pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	b.wantRefused(t, "b was stopped, and the key has moved")
	release()
	if third <= second {
		t.Errorf("a's token is %d, b's was %d", third, second)
	}
	if again := a.serves(t); again != third {
		t.Errorf("the token has changed from %d to %d, and the owner has not", third, again)
	}
}
