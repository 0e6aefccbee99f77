package backupdist

import (
	"context"
	"time"

	"github.com/slicer-project/slicer/assignment/backoff"
)

const (
	// checkEvery is how often a store is asked whether it can be read, and checkWithin
	// how long its answer may take.
	checkEvery  = 2 * time.Second
	checkWithin = 3 * time.Second
)

// watchHealth asks the store again and again whether it can be read: a watch goes on
// through an outage in silence.
func (src *source) watchHealth() {
	for life := src.s.life; ; backoff.Sleep(life, checkEvery) {
		ctx, cancel := context.WithTimeout(life, checkWithin)
		err := src.store.Check(ctx, false)
		cancel()
		if life.Err() != nil {
			return
		}
		if src.answered(err) {
			if err != nil {
				src.log.Error("the store cannot be read; what was read before is served", "error", err)
			} else {
				src.log.Info("the store can be read")
			}
		}
	}
}

// answered takes in what came of a check. It reports whether that is another than before.
func (src *source) answered(err error) (turned bool) {
	src.mu.Lock()
	defer src.mu.Unlock()
	answers := err == nil
	turned = answers != src.answers || !src.checked
	src.checked, src.answers = true, answers
	if answers {
		src.s.m.lastRead.WithLabelValues(src.name).Set(float64(time.Now().UnixMilli()) / 1000)
	}
	src.showLocked()
	return turned
}

// watching takes note that the store's jobs are watched, or not.
func (src *source) watching(on bool, reason error) {
	src.mu.Lock()
	defer src.mu.Unlock()
	src.watched = on
	if on {
		src.listed = true
	} else if reason != nil {
		src.reason = reason
	}
	src.showLocked()
}

func (src *source) showLocked() {
	v := 0.
	if src.watched && src.answers {
		v = 1
	}
	src.s.m.watched.WithLabelValues(src.name).Set(v)
}
