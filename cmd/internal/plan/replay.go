package plan

import (
	"context"
	"io"
	"slices"
	"sync"

	"github.com/slicer-project/slicer/loadbalance/sim"
)

// replay runs one source through several algorithms at once, reading it once
// and holding a few windows of it, however long it is. seen is told about each
// window.
func replay(ctx context.Context, src sim.Source, algorithms []string, config func(string) sim.Config, seen func(sim.Window)) ([]*sim.Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		wg      sync.WaitGroup
		results = make([]*sim.Result, len(algorithms))
		feeds   = make([]feed, len(algorithms))
	)
	for i, name := range algorithms {
		feeds[i] = feed{ctx: ctx, windows: make(chan sim.Window, 1)}
		wg.Go(func() {
			r, err := sim.Run(config(name), feeds[i])
			if err != nil {
				cancel(err)
			}
			results[i] = r
		})
	}
	err := distribute(ctx, src, feeds, seen)
	if err != nil {
		cancel(err)
	}
	for _, f := range feeds {
		close(f.windows)
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
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
