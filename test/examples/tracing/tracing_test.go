package tracing

import (
	"context"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/clerk"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/test/kit/bed"
)

// TestSpans runs a control plane, a server and a client, and looks for each kind of span.
func TestSpans(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(recorder))
	tracer := New(provider)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	p := bed.Start(t, bed.Config{Tracer: tracer})
	if err := p.PutJob(ctx, assignment.JobConfig{Name: "web"}); err != nil {
		t.Fatal(err)
	}
	s, err := slicelet.New(slicelet.Config{Job: "web", Task: "web-0", Address: "127.0.0.1:1", Distributors: p.Addrs(), Tracer: tracer})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c, err := clerk.New(clerk.Config{Job: "web", Distributors: p.Addrs(), Tracer: tracer})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(p.Addrs()[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	admin := slicerv1.NewAdminServiceClient(conn)
	if _, err := admin.GiveOrder(ctx, &slicerv1.GiveOrderRequest{Job: "web", Who: "ada", Order: &slicerv1.GiveOrderRequest_Freeze{Freeze: &slicerv1.FreezeOrder{}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.DrainTask(ctx, &slicerv1.DrainTaskRequest{Job: "none", Task: "x", Who: "ada"}); err == nil {
		t.Fatal("a job that is not there is drained")
	}

	attr := func(s sdk.ReadOnlySpan, key string) string {
		for _, a := range s.Attributes() {
			if string(a.Key) == "slicer."+key {
				return a.Value.Emit()
			}
		}
		return ""
	}
	all := recorder.Ended()
	find := func(name, key, value string) sdk.ReadOnlySpan {
		t.Helper()
		for _, s := range all {
			if s.Name() == name && attr(s, key) == value {
				return s
			}
		}
		for _, s := range all {
			t.Log(s.Name(), s.Attributes(), s.Status())
		}
		t.Fatalf("there is no span %s with %s %q", name, key, value)
		return nil
	}
	find("slicer.order", "action", "put job")
	if order := find("slicer.order", "action", "freeze"); attr(order, "job") != "web" || attr(order, "order") == "" || order.Status().Code == codes.Error {
		t.Errorf("the order: %v %v", order.Attributes(), order.Status())
	}
	if drain := find("slicer.order", "action", "drain"); drain.Status().Code != codes.Error {
		t.Errorf("an order that is refused: %v", drain.Status())
	}
	round := find("slicer.round", "round", "first")
	write := find("slicer.write", "job", "web")
	if write.Parent().SpanID() != round.SpanContext().SpanID() {
		t.Errorf("the write is not within its round: %v, %v", write.Parent(), round.SpanContext())
	}
	find("slicer.attach", "distributor", "distributor-0")
	find("slicer.attach", "assigner", "assigner-0")
	find("slicer.watch", "job", "web")
	find("slicer.connect", "server", p.Addrs()[0])
}
