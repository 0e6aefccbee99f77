package etcdstore

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/slicer-project/slicer/assignment/backoff"
	"github.com/slicer-project/slicer/assignment/store/internal/record"
)

const (
	sweepInterval = time.Minute
	// attemptGrace is how long a marker has to have been there, by the clock of the
	// process that collects, before its attempt counts as dead.
	attemptGrace = 2 * attemptTime
)

// marker is an attempt's, as it was seen.
type marker struct {
	key string
	rev int64 // create revision
}

// graveyard knows since when each marker has been seen. It compares no clocks:
// an attempt is dead when one process has seen its marker twice, attemptGrace apart.
type graveyard struct {
	since map[marker]time.Time
}

// observe takes all markers there are now and returns those of dead attempts.
func (g *graveyard) observe(now time.Time, markers []marker) (dead []marker) {
	since := make(map[marker]time.Time, len(markers))
	for _, m := range markers {
		first, ok := g.since[m]
		if !ok {
			first = now
		}
		since[m] = first
		if now.Sub(first) >= attemptGrace {
			dead = append(dead, m)
		}
	}
	g.since = since
	return dead
}

// startSweeper makes this process collect what attempts that died have left,
// its own and others'. Only processes that write do so.
func (s *Store) startSweeper() {
	s.mu.Lock()
	started := s.sweeper
	s.sweeper = true
	s.mu.Unlock()
	if started {
		return
	}
	s.goRun(func() {
		var g graveyard
		timer := time.NewTimer(0)
		defer timer.Stop()
		for {
			select {
			case <-s.ctx.Done():
				return
			case now := <-timer.C:
				if err := s.sweep(now, &g); err != nil && s.ctx.Err() == nil {
					s.cfg.Logger.Warn("collecting dead attempts", "store", s.cfg.where(), "error", err)
				}
			}
			timer.Reset(backoff.About(sweepInterval))
		}
	})
}

// sweep looks once at all markers and collects the dead.
func (s *Store) sweep(now time.Time, g *graveyard) error {
	ctx, done, err := s.begin(s.ctx)
	if err != nil {
		return err
	}
	defer done()
	var markers []marker
	from, to := s.layout.AttemptsAll(), record.After(s.layout.AttemptsAll())
	for {
		resp, err := s.client.Get(ctx, from, clientv3.WithRange(to), clientv3.WithKeysOnly(), clientv3.WithLimit(1000))
		if err != nil {
			return s.explain(ctx, err)
		}
		for _, kv := range resp.Kvs {
			markers = append(markers, marker{string(kv.Key), kv.CreateRevision})
		}
		if !resp.More || len(resp.Kvs) == 0 {
			break
		}
		from = markers[len(markers)-1].key + "\x00"
	}
	for _, m := range g.observe(now, markers) {
		if err := s.collect(ctx, m.key, m.rev); err != nil {
			return err
		}
		s.cfg.Logger.Info("collected a dead attempt", "attempt", m.key)
	}
	return nil
}

// collect deletes a marker and the pieces that it stands for, together. It does
// nothing when the marker is gone, or another than the one created at rev, if
// that is not 0. The attempt cannot move the head any more, nor put pieces.
func (s *Store) collect(ctx context.Context, key string, rev int64) error {
	when := clientv3.Compare(clientv3.CreateRevision(key), ">", 0)
	if rev != 0 {
		when = clientv3.Compare(clientv3.CreateRevision(key), "=", rev)
	}
	do := []clientv3.Op{clientv3.OpDelete(key)}
	if chunks, ok := s.layout.MarkedChunks(key); ok {
		do = append(do, clientv3.OpDelete(chunks, clientv3.WithRange(record.After(chunks))))
	}
	_, err := s.commit(ctx, txn{when: []clientv3.Cmp{when}, do: do})
	return err
}
