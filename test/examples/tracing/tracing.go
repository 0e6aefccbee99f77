// Package tracing gives Slicer's spans to OpenTelemetry: New makes of a program's provider what
// goes into the Config of a clerk, slicelet, assigner or Distributor as Tracer. It is a module
// of its own, so that Slicer itself does not link OpenTelemetry; copy it.
package tracing

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	otel "go.opentelemetry.io/otel/trace"

	"github.com/slicer-project/slicer/assignment/trace"
)

// New returns a Tracer whose spans go to p.
func New(p otel.TracerProvider) trace.Tracer {
	return tracer{p.Tracer("github.com/slicer-project/slicer")}
}

type tracer struct{ of otel.Tracer }

func (t tracer) Start(ctx context.Context, name string, attrs ...slog.Attr) (context.Context, trace.Span) {
	ctx, s := t.of.Start(ctx, name, otel.WithAttributes(keyValues(attrs)...))
	return ctx, span{s}
}

type span struct{ of otel.Span }

func (s span) Set(attrs ...slog.Attr) { s.of.SetAttributes(keyValues(attrs)...) }

func (s span) End(err error) {
	if err != nil {
		s.of.RecordError(err)
		s.of.SetStatus(codes.Error, err.Error())
	}
	s.of.End()
}

func keyValues(attrs []slog.Attr) (all []attribute.KeyValue) {
	for _, a := range attrs {
		key := "slicer." + a.Key
		switch v := a.Value.Resolve(); v.Kind() {
		case slog.KindInt64:
			all = append(all, attribute.Int64(key, v.Int64()))
		case slog.KindFloat64:
			all = append(all, attribute.Float64(key, v.Float64()))
		default:
			all = append(all, attribute.String(key, v.String()))
		}
	}
	return all
}
