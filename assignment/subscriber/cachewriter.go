package subscriber

import (
	"log/slog"
	"sync"
	"time"
)

// cacheSpacing is the least time between two writes of the cache file: a job that
// changes all the time must not keep the disk busy.
const cacheSpacing = 10 * time.Second

// cacheWriter writes the newest assignment to the cache file, so that receiving does not
// wait for the disk.
type cacheWriter struct {
	path string
	log  *slog.Logger

	mu     sync.Mutex
	newest *cacheEntry // not written yet

	failed bool // the last write, which was logged; run's own

	wake chan struct{}
	stop chan struct{}
	done chan struct{}
}

func startCacheWriter(path string, log *slog.Logger) *cacheWriter {
	w := &cacheWriter{
		path: path, log: log,
		wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
	}
	go w.run()
	return w
}

// offer never blocks: the newest takes the place of what was not written yet.
func (w *cacheWriter) offer(e cacheEntry) {
	w.mu.Lock()
	w.newest = &e
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// close writes what is left and waits for it.
func (w *cacheWriter) close() {
	close(w.stop)
	<-w.done
}

func (w *cacheWriter) run() {
	defer close(w.done)
	defer w.flush()
	for {
		select {
		case <-w.wake:
		case <-w.stop:
			return
		}
		w.flush()
		pause := time.NewTimer(cacheSpacing)
		select {
		case <-pause.C:
		case <-w.stop:
			pause.Stop()
			return
		}
	}
}

func (w *cacheWriter) flush() {
	w.mu.Lock()
	e := w.newest
	w.newest = nil
	w.mu.Unlock()
	if e == nil {
		return
	}
	err := writeCache(w.path, *e)
	if err != nil && !w.failed {
		// Tried again with the next assignment: an old cache is still a good one.
		w.log.Warn("cache file not written", "path", w.path, "error", err)
	}
	w.failed = err != nil
}
