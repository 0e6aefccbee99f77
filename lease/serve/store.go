package serve

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/access/enforce"
	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/lease/internal/table"
)

// Storage is the little that a Store keeps for good: a few short records a job.
// Keys are printable ASCII and begin with "lease/".
type Storage interface {
	// Load returns all records whose keys begin with "lease/".
	Load(ctx context.Context) (map[string][]byte, error)
	// Put writes the records, all or none, and returns when they are durable.
	Put(ctx context.Context, records map[string][]byte) error
}

// Config is what a store needs.
type Config struct {
	Storage Storage
	// Terms looks up what a job's config says: the zero value for a job that is unknown. It
	// is called at each opening and renewal, by several goroutines at once. Nil grants every
	// job what is asked for, which only a store without strangers may do.
	Terms func(ctx context.Context, job string) (Terms, error)
	// Rights say who may own a job, which a session of it over gRPC needs; nil lets all.
	Rights *enforce.Rights
	// Fresh says that the storage was made for this store: there is nothing that an
	// earlier process may have granted from it. Otherwise a job's sessions are
	// granted when its lease duration has passed since the opening, lest the storage
	// is an older copy that was put back.
	Fresh bool
	// Clock is the time that leases are counted in; default lease.Boottime.
	Clock func() time.Duration
	// Logger may be nil.
	Logger *slog.Logger
}

// Terms are what a job's config says of its leases.
type Terms struct {
	// LeaseTime is the lease_duration of a job in consistent mode, and 0 of others, in which
	// no session is granted.
	LeaseTime time.Duration
	// Access says who may own the job; the zero value leaves that to the policy.
	Access assignment.Access
}

const (
	keyEpoch   = "lease/epoch"   // how often the store was opened
	keyLongest = "lease/longest" // what JOB/longest is, for all jobs: of a suspension
	keyJobs    = "lease/job/"    // JOB/head, JOB/guard, JOB/bridge, JOB/longest
	longest    = "longest"       // nanoseconds; no lease of the job that may still run is longer
)

// Store is a lease store in this process. It implements lease.Readers and
// lease.Writers, and serves the former over gRPC.
type Store struct {
	storage Storage
	terms   func(ctx context.Context, job string) (Terms, error)
	rights  *enforce.Rights
	fresh   bool
	clock   func() time.Duration
	log     *slog.Logger
	began   time.Duration

	stop context.CancelFunc
	done context.Context // ended by Close
	// writes is the context of writes to storage, which Close ends last.
	writes    context.Context
	endWrites context.CancelFunc
	wg        sync.WaitGroup
	wake      chan struct{} // a session was opened that may be the next to run out

	mu       lock
	table    *table.Table
	remote   *remoteSessions
	promises *promises
	records  notifiers // notified when guard or bridge change
	touched  notifiers // notified when anything in the job changes
	// suspended is until when no session's claim is granted and no record changes.
	suspended time.Duration
	// err is why nothing is done now: for good after a write that failed, since what is
	// stored is unknown then, and for as long as one has not been answered.
	err error
}

// lock is a mutex. It is a channel since it is held while the disk is waited for: in a
// bubble of testing/synctest the time passes for those that wait on a channel, and not for
// those that wait on a sync.Mutex.
type lock chan struct{}

func (l lock) Lock()   { l <- struct{}{} }
func (l lock) Unlock() { <-l }

// Open loads the records. It does not wait for what may have been granted
// before; in each job, OpenReader and Lead refuse until that has passed.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if cfg.Storage == nil {
		return nil, fmt.Errorf("served leases: %w", &assignment.FieldError{Field: "storage", Value: nil, Allowed: "where records are kept"})
	}
	if cfg.Clock == nil {
		cfg.Clock = lease.Boottime
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	stored, err := cfg.Storage.Load(ctx)
	if err != nil {
		return nil, fmt.Errorf("served leases: load: %w", err)
	}
	s := &Store{storage: cfg.Storage, terms: cfg.Terms, rights: cfg.Rights, fresh: cfg.Fresh, clock: cfg.Clock, log: cfg.Logger, wake: make(chan struct{}, 1),
		mu: make(lock, 1), remote: newRemoteSessions(), promises: newPromises(), records: notifiers{}, touched: notifiers{}}
	epoch, err := s.load(stored)
	if err != nil {
		return nil, fmt.Errorf("served leases: %w", err)
	}
	if err := cfg.Storage.Put(ctx, map[string][]byte{keyEpoch: number(epoch)}); err != nil {
		return nil, fmt.Errorf("served leases: begin epoch %d: %w", epoch, err)
	}
	s.began = s.clock()
	s.done, s.stop = context.WithCancel(context.Background())
	s.writes, s.endWrites = context.WithTimeout(context.Background(), forever)
	s.wg.Go(s.expire)
	return s, nil
}

// load reads what is stored and returns the number of the epoch that begins.
func (s *Store) load(stored map[string][]byte) (epoch uint64, err error) {
	all, err := parse(keyLongest, stored[keyLongest], uint64(lease.MaxTTL))
	if err != nil {
		return 0, err
	}
	s.promises.load(allJobs, time.Duration(all))
	// Session ids, tokens and revisions of an epoch lie above those of all before.
	const epochs = 1 << 30
	if epoch, err = parse(keyEpoch, stored[keyEpoch], epochs); err != nil {
		return 0, err
	}
	epoch++
	s.table = table.New(epoch << 32)
	jobs := map[string]lease.Records{}
	for key, text := range stored {
		rest, ok := strings.CutPrefix(key, keyJobs)
		if !ok {
			if key != keyEpoch && key != keyLongest {
				return 0, fmt.Errorf("%s: %w: no such record", key, lease.ErrCorrupt)
			}
			continue
		}
		job, what, _ := strings.Cut(rest, "/")
		if what == longest {
			d, err := parse(key, text, uint64(lease.MaxTTL))
			if err != nil {
				return 0, err
			}
			s.promises.load(job, time.Duration(d))
			continue
		}
		r := jobs[job]
		if err := decode(&r, what, text); err != nil {
			return 0, fmt.Errorf("%s: %w", key, err)
		}
		jobs[job] = r
	}
	for job, r := range jobs {
		s.table.Load(job, r)
	}
	return epoch, nil
}

func decode(r *lease.Records, what string, text []byte) error {
	switch what {
	case "head":
		var c lease.Claim
		if err := c.UnmarshalText(text); err != nil || c.Bridge() {
			return fmt.Errorf("%w: head %.40q is no generation", lease.ErrCorrupt, text)
		}
		r.Head = c.To
		return nil
	case "guard":
		return r.Guard.UnmarshalText(text)
	case "bridge":
		return r.Bridge.UnmarshalText(text)
	}
	return fmt.Errorf("%w: no such record", lease.ErrCorrupt)
}

// encode gives the records that differ.
func encode(job string, was, is lease.Records) map[string][]byte {
	out := map[string][]byte{}
	if was.Head != is.Head {
		out[keyJobs+job+"/head"], _ = lease.GuardClaim(is.Head).MarshalText()
	}
	if was.Guard != is.Guard {
		out[keyJobs+job+"/guard"], _ = is.Guard.MarshalText()
	}
	if was.Bridge != is.Bridge {
		var text []byte // none: the bridge is deleted
		if is.Bridge != (lease.Bridge{}) {
			text, _ = is.Bridge.MarshalText()
		}
		out[keyJobs+job+"/bridge"] = text
	}
	return out
}

func number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func parse(key string, b []byte, most uint64) (uint64, error) {
	switch {
	case len(b) == 0:
		return 0, nil
	case len(b) != 8 || binary.BigEndian.Uint64(b) > most:
		return 0, fmt.Errorf("%s: %w: 8 bytes are allowed, up to %d", key, lease.ErrCorrupt, most)
	}
	return binary.BigEndian.Uint64(b), nil
}

// Close ends all watches and waits for what the store runs. It waits for no
// session: those that are open end with it.
func (s *Store) Close() error {
	s.stop()
	err := s.finish()
	s.endWrites()
	s.wg.Wait()
	if err != nil {
		return fmt.Errorf("served leases: close: %w", err)
	}
	return nil
}

// finish is the last that is done. What has not been stored by now is left as it is.
func (s *Store) finish() (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		err = s.lowerLocked()
	}
	s.err = fmt.Errorf("%w: closed", lease.ErrUnavailable)
	return err
}

const (
	// patience is how long a write is waited for under the lock. Then the store does
	// nothing else until the write is answered.
	patience = time.Second
	// forever is how long a write is waited for: what became of it must be known before
	// the next, and a disk that hangs may go on at any time.
	forever = 100 * 365 * 24 * time.Hour
)

// lowerEvery is how often at most what was promised is made less again in storage.
const lowerEvery = time.Second

// expire ends sessions when their time is up.
func (s *Store) expire() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	lowered := s.began
	for {
		select {
		case <-s.done.Done():
			return
		case <-s.wake:
		case <-timer.C:
		}
		s.mu.Lock()
		now := s.clock()
		for _, e := range s.table.Expire(now) {
			for _, job := range e.Held {
				s.log.Info("lease ran out", "job", job)
			}
			s.overLocked(e.ID, e.Held)
		}
		next, ok := s.table.Wake()
		if (s.promises.loose || s.promises.of[suspension] != nil) && s.err == nil {
			if now >= lowered+lowerEvery {
				lowered = now
				_ = s.lowerLocked() // no more is granted after an error
			}
			if (s.promises.loose || s.promises.of[suspension] != nil) && (!ok || lowered+lowerEvery < next) {
				next, ok = lowered+lowerEvery, true
			}
		}
		s.mu.Unlock()
		if ok {
			timer.Reset(max(next-now, time.Millisecond))
		}
	}
}

// rouse makes expire look anew at what is due next.
func (s *Store) rouse() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// promiseLocked makes durable for how long what is about to be granted may be held. That
// is a job's limit, so that not every session writes; where there is none, it is the
// lease time asked for. The lock is held.
func (s *Store) promiseLocked(limits map[string]time.Duration, ttl time.Duration) error {
	need := map[string]time.Duration{}
	for job, limit := range limits {
		if need[job] = limit; s.terms == nil {
			need[job] = ttl
		}
	}
	return s.keepLocked(s.promises.missing(need))
}

// promisedLocked notes what a session was promised. The lock is held.
func (s *Store) promisedLocked(id uint64, limits map[string]time.Duration, ttl time.Duration) {
	for job, limit := range limits {
		if s.terms == nil {
			limit = ttl
		}
		s.promises.make(id, job, limit)
	}
}

// lowerLocked makes less what is stored of promises, where less is needed. The lock is held.
func (s *Store) lowerLocked() error {
	if s.clock() >= s.suspended {
		s.promises.drop(suspension)
	}
	return s.keepLocked(s.promises.lower(s.clock() - s.began))
}

// keepLocked makes durable what is promised. The lock is held.
func (s *Store) keepLocked(jobs map[string]time.Duration) error {
	if len(jobs) == 0 {
		return nil
	}
	records := map[string][]byte{}
	for job, d := range jobs {
		var text []byte // none: deleted
		if d > 0 {
			text = number(uint64(d))
		}
		if job == allJobs {
			records[keyLongest] = text
		} else {
			records[keyJobs+job+"/"+longest] = text
		}
	}
	return s.putLocked(records, func() { s.promises.keep(jobs) })
}

// putLocked makes records durable, and then does what follows. The lock is held: nothing
// that was compared changes meanwhile. A disk that is slow is waited for without the lock
// after a while, and nothing else is done until it has answered: then the store goes on
// with what follows, as if the answer had come at once. To the caller it is an error like
// any other after which it is not known what has been done.
func (s *Store) putLocked(records map[string][]byte, then func()) error {
	answer := make(chan error, 1)
	s.wg.Go(func() { answer <- s.storage.Put(s.writes, records) })
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case err := <-answer:
		return s.storedLocked(err, then)
	case <-timer.C:
	}
	slow := fmt.Errorf("%w: the disk has not answered for %s", lease.ErrUnavailable, patience)
	s.err = slow
	s.log.Warn("lease store waits for its disk", "error", slow)
	began := time.Now()
	s.wg.Go(func() {
		err := <-answer
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.err != slow { // closed
			return
		}
		if s.err = nil; s.storedLocked(err, then) == nil {
			s.log.Info("lease store goes on", "after", patience+time.Since(began))
			s.rouse()
		}
	})
	return slow
}

// storedLocked takes the answer to a write. The lock is held.
func (s *Store) storedLocked(err error, then func()) error {
	if err != nil {
		s.err = fmt.Errorf("%w: a record could not be stored: %w", lease.ErrUnavailable, err)
		s.log.Error("lease store stops", "error", err)
		return s.err
	}
	then()
	return nil
}
