package sliceletgrpc

import (
	"testing"

	"google.golang.org/grpc/metadata"
)

func TestIncoming(t *testing.T) {
	md := metadata.Pairs("a", "1", "a", "2")
	ctx := metadata.NewIncomingContext(t.Context(), md)
	if got := last(incoming(ctx), "a"); got != "2" {
		t.Errorf("the last value is %q", got)
	}
	if got := last(incoming(t.Context()), "a"); got != "" {
		t.Errorf("without metadata the last value is %q", got)
	}
	// What gRPC keeps is what is looked at, so nothing is copied.
	if n := testing.AllocsPerRun(100, func() { incoming(ctx) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	defer func(key any) { incomingKey = key }(incomingKey)
	for _, key := range []any{nil, struct{ other int }{}} {
		incomingKey = key
		if got := last(incoming(ctx), "a"); got != "2" {
			t.Errorf("under the key %v the last value is %q", key, got)
		}
	}
}
