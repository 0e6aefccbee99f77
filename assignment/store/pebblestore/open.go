package pebblestore

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/slicer-project/slicer/assignment/store/internal/record"
)

// failedGrace is how long opening a store may go on after it has failed, for an end
// that says more and leaves the directory free.
const failedGrace = time.Second

// Open opens the store in a directory and makes it if it is not there. See OpenContext.
func Open(dir string, cfg Config) (*Store, error) {
	return OpenContext(context.Background(), dir, cfg)
}

// OpenContext is Open until ctx ends. Pebble tries again for ever what it cannot write
// at its start: when the disk is full, OpenContext returns all the same, within
// seconds, and names the directory and the cause. After an error the directory may
// stay locked for as long as Pebble, or the disk, does not give up, at most until
// the process ends.
func OpenContext(ctx context.Context, dir string, cfg Config) (*Store, error) {
	return open(ctx, dir, cfg, (*Store).start)
}

// open locks the directory and calls start, which takes the lock over.
func open(ctx context.Context, dir string, cfg Config, start func(*Store, *pebble.Lock) error) (*Store, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	s := &Store{
		cfg: cfg, layout: record.Layout{Compress: cfg.Compress}, dir: filepath.Clean(dir), failed: make(chan struct{}), stopped: make(chan struct{}),
		jobs: make(map[string]*job), watchers: make(map[*watcher]struct{}),
	}
	// Beside the caller: Pebble stops where it stands when it meets an error that
	// it cannot go on after.
	result := make(chan error)
	given := make(chan struct{}) // closed when the caller waits no longer
	go func() {
		err := s.begin(start)
		select {
		case result <- err:
		case <-given:
			if err == nil {
				_ = s.Close()
			}
		}
	}()
	err := awaitOpen(ctx, s, result)
	close(given)
	if err != nil {
		return nil, fmt.Errorf("open store directory %s: %w", s.dir, err)
	}
	return s, nil
}

// awaitOpen waits for the result, or for what keeps it from coming.
func awaitOpen(ctx context.Context, s *Store, result <-chan error) error {
	select {
	case err := <-result:
		return err
	case <-s.stopped:
		return s.Err()
	case <-ctx.Done():
		return ctx.Err()
	case <-s.failed:
	}
	grace := time.NewTimer(failedGrace)
	defer grace.Stop()
	select {
	case err := <-result:
		return err
	case <-s.stopped:
	case <-grace.C:
	case <-ctx.Done():
	}
	return s.Err()
}

// begin locks the directory and opens what is in it.
func (s *Store) begin(start func(*Store, *pebble.Lock) error) (err error) {
	if s.cfg.existing {
		found, err := pebble.Peek(s.dir, s.cfg.fs)
		if err == nil && !found.Exists || errors.Is(err, os.ErrNotExist) {
			err = errors.New("there is no store in it")
		}
		if err != nil {
			return err
		}
	} else if err := s.cfg.fs.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	lock, err := pebble.LockDirectory(s.dir, s.cfg.fs)
	if err != nil {
		if errors.Is(err, syscall.EAGAIN) || strings.Contains(err.Error(), "held by current process") {
			err = fmt.Errorf("it is in use, by another process or in this one: %w", err)
		}
		return err
	}
	defer func() {
		if r := recover(); r != nil {
			err = s.stop(fmt.Errorf("%v", r))
		}
	}()
	return start(s, lock)
}

// start opens the database and reads what there is. It gives the lock to the
// database, with whose end the directory is free.
func (s *Store) start(lock *pebble.Lock) error {
	err := s.openFiles(lock)
	if err != nil {
		return err
	}
	err = s.identify()
	if err == nil {
		err = s.load()
	}
	if err == nil {
		err = s.Err()
	}
	if err != nil {
		return errors.Join(err, s.shut())
	}
	return nil
}

// openFiles opens the database and the witness beside it.
func (s *Store) openFiles(lock *pebble.Lock) error {
	if err := checkRoom(&s.cfg, s.dir); err != nil {
		return errors.Join(err, lock.Close())
	}
	db, err := pebble.Open(s.dir, s.options(lock))
	err = errors.Join(err, lock.Close())
	if err != nil {
		if pebble.IsCorruptionError(err) {
			err = record.Corrupt(s.dir, "%w", err)
		}
		return err
	}
	s.db = db
	if s.witness, err = openWitness(s.cfg.fs, s.dir); err != nil {
		return errors.Join(err, db.Close())
	}
	return nil
}

// openRoom is what pebble.Open writes at most beside what it moves from its log to tables,
// and some more for the first writes after it, bytes.
const openRoom = 256 << 10

// checkRoom returns an error if the disk has no room for what opening a directory writes. An
// Open that finds that out by itself, after it has moved its log to tables, ends while its
// goroutines still read those, and they panic (Pebble 2.1).
func checkRoom(cfg *Config, dir string) error {
	disk, err := cfg.fs.GetDiskUsage(dir)
	if cfg.readOnly || err != nil {
		return nil // what is not known Open finds out
	}
	need := uint64(openRoom)
	names, err := cfg.fs.List(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if filepath.Ext(name) != ".log" {
			continue
		}
		info, err := cfg.fs.Stat(cfg.fs.PathJoin(dir, name))
		if err != nil {
			return err
		}
		need += uint64(info.Size())
	}
	if disk.AvailBytes < need {
		return fmt.Errorf("%w: opening it takes up to %d bytes, %d are free", syscall.ENOSPC, need, disk.AvailBytes)
	}
	return nil
}

// shut closes the files.
func (s *Store) shut() error { return errors.Join(s.db.Close(), s.witness.close()) }

func (s *Store) options(lock *pebble.Lock) *pebble.Options {
	return &pebble.Options{
		FS:     s.cfg.fs,
		Lock:   lock,
		Logger: &logger{s},
		// A medium that is only read leaves the files as they are.
		ReadOnly: s.cfg.readOnly,
		// The newest log format tells a damaged record from the end of the log.
		FormatMajorVersion: pebble.FormatNewest,
		EventListener: &pebble.EventListener{
			BackgroundError: func(err error) {
				if !pebble.IsCorruptionError(err) {
					_ = s.fail(err)
				}
			},
			// A read of what is damaged returns an error.
			DataCorruption: func(info pebble.DataCorruptionInfo) {
				s.cfg.Logger.Error("damaged file", "dir", s.dir, "file", info.Path, "error", info.Details.Error())
			},
		},
	}
}

// identify reads the store's identity, or gives it one, and counts its openings.
func (s *Store) identify() error {
	s.id = record.Identity{StoreID: random()}
	kvs, err := s.scan(s.layout.ID(), s.layout.ID()+"\x00")
	if err != nil {
		return err
	}
	if len(kvs) > 0 {
		if s.id, err = s.layout.DecodeIdentity(kvs[0].Value); err != nil {
			return err
		}
	}
	if s.id.Writes < s.witness.last {
		return record.Corrupt(s.dir, "%d batches are there, %d were acknowledged: a file is damaged or cut off", s.id.Writes, s.witness.last)
	}
	s.id.Opened++
	s.layout.StoreID = s.id.StoreID
	s.registry.start(s.id.Opened)
	b := s.db.NewBatch()
	defer b.Close()
	return s.write(b)
}

// random is never 0.
func random() uint64 {
	var b [8]byte
	for {
		_, _ = rand.Read(b[:]) // never fails
		if v := binary.LittleEndian.Uint64(b[:]); v != 0 {
			return v
		}
	}
}

// load reads what there is of each job, apart from assignments.
func (s *Store) load() error {
	kvs, err := s.scan(s.layout.Jobs(), record.After(s.layout.Jobs()))
	if err != nil {
		return err
	}
	for _, kv := range kvs {
		name, part, ok := s.layout.JobOf(kv.Key)
		if !ok {
			continue
		}
		switch j := s.entryLocked(name); part {
		case record.PartOverrides:
			j.overrides, j.ordersErr = s.layout.DecodeOverrides(name, kv.Value)
			j.ordered = true
		case record.PartHead:
			j.head, j.headErr = s.layout.DecodeHead(name, kv.Value)
		default:
			c, err := s.layout.DecodeJob(name, kv.Value)
			if j.configErr = err; err == nil {
				j.config = &c
			}
		}
	}
	if kvs, err = s.scan(s.layout.GoneAll(), record.After(s.layout.GoneAll())); err != nil {
		return err
	}
	for _, kv := range kvs {
		name := strings.TrimPrefix(kv.Key, s.layout.GoneAll())
		t, err := s.layout.DecodeTombstone(name, kv.Value)
		j := s.entryLocked(name)
		if j.goneErr = err; err == nil {
			j.gone = &t
			if !j.ordered {
				j.overrides.Version = t.Overrides
			}
		}
	}
	return nil
}

// entryLocked returns a job's entry, which it makes if there is none. Store.mu is held or
// nothing else uses the store yet.
func (s *Store) entryLocked(name string) *job {
	j := s.jobs[name]
	if j == nil {
		j = &job{lock: make(chan struct{}, 1)}
		s.jobs[name] = j
	}
	return j
}

// logger takes what Pebble says.
type logger struct{ s *Store }

func (l *logger) Infof(format string, args ...any) {
	l.s.cfg.Logger.Debug("pebble", "message", fmt.Sprintf(format, args...))
}

func (l *logger) Errorf(format string, args ...any) {
	l.s.cfg.Logger.Warn("pebble", "message", fmt.Sprintf(format, args...))
}

// Fatalf must not return, since Pebble cannot go on. It stops the goroutine
// where it stands, with whatever locks it holds, so that nothing is done to the
// files any more; the process is to end, by Store.Failed.
func (l *logger) Fatalf(format string, args ...any) {
	_ = l.s.stop(fmt.Errorf(format, args...))
	select {}
}
