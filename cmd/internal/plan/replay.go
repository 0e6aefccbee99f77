package plan

import (
	"context"
	"io"
	"slices"

	"github.com/slicer-project/slicer/loadbalance/sim"
)

// replay runs one source through several algorithms at once, reading it once
// and holding a few windows of it, however long it is. seen is told about each
// window. When the context ends it returns at once: a decision over many owners
// takes minutes and cannot be told to stop. What goes on then ends with its round
// and holds nothing but memory.
func replay(ctx context.Context, src sim.Source, algorithms []string, config func(string) sim.Config, seen func(sim.Window)) ([]*sim.Result, error) {
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		results = make([]*sim.Result, len(algorithms))
		feeds   = make([]feed, len(algorithms))
		ended   = make(chan struct{}, len(algorithms))
	)
	for i, name := range algorithms {
		feeds[i] = feed{ctx: inner, windows: make(chan sim.Window, 1)}
		c := config(name)
		go func() {
			r, err := sim.Run(c, feeds[i])
			if err != nil {
				cancel(err)
			}
			results[i] = r
			ended <- struct{}{}
		}()
	}
	if err := distribute(inner, src, feeds, seen); err != nil {
		cancel(err)
	}
	for _, f := range feeds {
		close(f.windows)
	}
	for range feeds {
		select {
		case <-ended:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if err := context.Cause(inner); err != nil {
		return nil, err
	}
	return results, nil
}

// distribute gives each window of a source to all feeds.
func distribute(ctx context.Context, src sim.Source, feeds []feed, seen func(sim.Window)) error {
	for {
		w, err := src.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		// The source goes on to use its columns; the replays share these.
		w.Keys, w.Load = slices.Clone(w.Keys), slices.Clone(w.Load)
		for _, f := range feeds {
			select {
			case f.windows <- w:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		seen(w)
	}
}

// feed is the source of one of several replays. It ends with an error when any
// of them fails or the context ends.
type feed struct {
	ctx     context.Context
	windows chan sim.Window
}

// Next implements sim.Source.
func (f feed) Next() (sim.Window, error) {
	if f.ctx.Err() != nil {
		return sim.Window{}, context.Cause(f.ctx)
	}
	w, ok := <-f.windows
	switch {
	case ok:
		return w, nil
	case f.ctx.Err() != nil:
		return sim.Window{}, context.Cause(f.ctx)
	}
	return sim.Window{}, io.EOF
}
