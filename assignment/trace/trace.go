// Package trace is what a program's tracing looks like to Slicer, so that Slicer links none.
//
// A program gives the Config of a clerk, slicelet, assigner or Distributor a Tracer, which passes
// spans on to its own provider. For OpenTelemetry that takes some twenty lines, which
// test/examples/tracing has. Without a Tracer nothing is traced.
//
// These are the spans:
//
//	slicer.order    an order or a job config, from the call's arrival at the assigner to its answer
//	slicer.round    an assigner works out a round
//	slicer.write    it writes the assignment that came of it, within the round
//	slicer.attach   a Distributor's stream is set up: at the Distributor and at the assigner
//	slicer.watch    a subscriber's stream is set up at a Distributor
//	slicer.connect  a clerk or slicelet connects to a Distributor or a Backup Distributor
//
// They have attributes by the keys of the logs. A request is looked up in memory, and has no
// span.
//
// The context of a span is that of the gRPC calls made in it, so with interceptors or stats
// handlers of the program's own in DialOptions, and in the options of its servers, the spans of
// several processes are one trace.
package trace

import (
	"context"
	"log/slog"
	"sync"
)

// Tracer begins spans. It must be safe for concurrent use, and must not block.
type Tracer interface {
	// Start begins a span, within the one in ctx if there is one, and returns a context with
	// the new one in it.
	Start(ctx context.Context, name string, attrs ...slog.Attr) (context.Context, Span)
}

// Span is something that takes time. Its methods are called by one goroutine at a time.
type Span interface {
	// Set adds attributes.
	Set(attrs ...slog.Attr)
	// End ends it, once. The error is why it failed, nil if it has not.
	End(err error)
}

// Start begins a span of t, which may be nil. To end what is returned again does nothing.
func Start(ctx context.Context, t Tracer, name string, attrs ...slog.Attr) (context.Context, Span) {
	if t == nil {
		return ctx, none{}
	}
	ctx, s := t.Start(ctx, name, attrs...)
	return ctx, &once{s: s}
}

type none struct{}

func (none) Set(...slog.Attr) {}
func (none) End(error)        {}

// once is a span that takes nothing more in when it has ended, for streams, of which several
// goroutines may find that they are set up or have failed.
type once struct {
	mu    sync.Mutex
	s     Span
	ended bool
}

func (o *once) Set(attrs ...slog.Attr) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.ended {
		o.s.Set(attrs...)
	}
}

func (o *once) End(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.ended {
		o.ended = true
		o.s.End(err)
	}
}
