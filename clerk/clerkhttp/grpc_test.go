package clerkhttp

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/httpkey"
	"github.com/slicer-project/slicer/assignment/subscriber/subscribertest"
	"github.com/slicer-project/slicer/clerk"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"github.com/slicer-project/slicer/test/examples/greeter/hello"
)

// refusing is a gRPC server that refuses so many RPCs before it serves one.
type refusing struct {
	hello.Greeter
	left, served atomic.Int64
	job          string
}

func (r *refusing) SayHello(_ context.Context, name *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
	if r.left.Add(-1) >= 0 {
		return nil, clerk.Refused{Job: r.job, Task: "t0", Generation: 1}
	}
	r.served.Add(1)
	return name, nil
}

// greet makes a gRPC service, a proxy before it with this Patience, and a stub to it
// through the proxy.
func greet(t *testing.T, mode slicerv1.Mode, rules Rules, patience time.Duration) (*refusing, hello.GreeterClient) {
	t.Helper()
	r := &refusing{job: "job"}
	g := grpc.NewServer()
	hello.RegisterGreeterServer(g, r)
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = g.Serve(lis)
	}()
	t.Cleanup(func() { g.Stop(); <-served })

	network := subscribertest.NewNetwork()
	server := network.Start(distributor)
	t.Cleanup(server.Stop)
	server.Say(&slicerv1.Status{TakesReports: true, Mode: mode})
	task := subscribertest.Task("t0", 0)
	task.Address = lis.Addr().String()
	server.Put(subscribertest.Equal(t, nil, assignment.Header{Job: "job", StoreID: 1, Generation: 1}, []assignment.Task{task}, 0))
	rules.List[0].Upstream = H2C
	var ck *clerk.Clerk
	proxy, err := NewProxy(ProxyConfig{Rules: rules, Patience: patience, Clerk: func(job string) (_ *clerk.Clerk, err error) {
		ck, err = clerk.New(clerk.Config{Job: job, Distributors: []string{distributor}, DialOptions: network.DialOptions()})
		return ck, err
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := ck.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(proxy)
	srv.Config.Protocols = protocols()
	srv.Start()
	t.Cleanup(func() {
		srv.Close()
		if err := proxy.Close(); err != nil {
			t.Error(err)
		}
	})
	conn, err := grpc.NewClient("passthrough:///"+srv.Listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return r, hello.NewGreeterClient(conn)
}

// TestGRPCRefusals: an RPC that a task refuses is sent again, as an HTTP request is.
func TestGRPCRefusals(t *testing.T) {
	r, stub := greet(t, consistent, anyPath(httpkey.Header("x-user")), 0)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x-user", "anna")
	r.left.Store(2)
	if got, err := stub.SayHello(ctx, wrapperspb.String("again")); err != nil || got.GetValue() != "again" || r.served.Load() != 1 {
		t.Errorf("refused twice: %v, %v, served %d", got, err, r.served.Load())
	}
	// One that cannot be had again is the client's to repeat, which knows it by its status.
	r.left.Store(1)
	_, err := stub.SayHello(ctx, wrapperspb.String(strings.Repeat("x", 2*maxKept)))
	if refused, ok := clerk.RefusedFromStatus(err); !ok || refused.Task != "t0" || refused.Job != "job" {
		t.Errorf("a large one: %v", err)
	}
	// Another job's refusal is an answer.
	r.left.Store(1)
	r.job = "other"
	if _, err := stub.SayHello(ctx, wrapperspb.String("other")); status.Code(err) != codes.Unavailable || r.left.Load() != 0 {
		t.Errorf("another job's: %v", err)
	}
	// The key has no owner for longer than the proxy waits.
	r, stub = greet(t, consistent, anyPath(httpkey.Header("x-user")), 200*time.Millisecond)
	r.left.Store(1 << 40)
	if _, err := stub.SayHello(ctx, wrapperspb.String("never")); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "no task of job") {
		t.Errorf("refused for ever: %v", err)
	}
}

// TestGRPCErrors: what the proxy says itself is a status to a gRPC client.
func TestGRPCErrors(t *testing.T) {
	rules := anyPath(httpkey.Header("x-user"))
	rules.List[0].Missing = Refuse
	r, stub := greet(t, affinity, rules, 0)
	if _, err := stub.SayHello(t.Context(), wrapperspb.String("keyless")); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "header X-User is absent") {
		t.Errorf("without a key: %v", err)
	}
	if r.served.Load() != 0 {
		t.Error("it went to a task")
	}
}

// FuzzGRPCRefusal: whatever a task says, nothing panics, and what counts as a refusal
// names a task and is of the job.
func FuzzGRPCRefusal(f *testing.F) {
	refused := "CA4SQXRhc2sgInQwIiBvZiBqb2IgImpvYiIgZG9lcyBub3Qgb3duIHRoZSBrZXk"
	for _, details := range []string{"", refused, refused + "==", "CA4", "%%%", strings.Repeat("A", maxDetails+1)} {
		f.Add("14", "application/grpc", details)
	}
	f.Add("0", "application/grpc+proto", refused)
	f.Fuzz(func(t *testing.T, code, kind, details string) {
		resp := &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {kind}, grpcStatus: {code}, grpcDetails: {details}}}
		if r, ok := refusal("job", resp); ok && (code != "14" || r.Job != "" && r.Job != "job" || !strings.HasPrefix(kind, grpcType)) {
			t.Errorf("%+v", r)
		}
	})
}
