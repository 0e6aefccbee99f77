// Package record is what the stores keep: which records there are, under which
// keys, how they are sealed, and how a job's assignments are put together from
// them. It is pure; etcdstore and pebblestore carry out what it says.
//
// The keys, each after the store's prefix:
//
//	id                                   identity of the store
//	jobs/JOB/config                      config and version
//	jobs/JOB/head                        newest generation, and the kept segments
//	jobs/JOB/overrides                    orders of operators in force
//	gone/JOB                             last version, generation and order of a deleted job
//	generations/JOB/GENERATION           one generation, with its delta if that is short
//	chunks/JOB/GENERATION/ATTEMPT/dNNNN  pieces of a long delta
//	chunks/JOB/GENERATION/ATTEMPT/wNNNN  pieces of a whole assignment
//	attempts/JOB/GENERATION/ATTEMPT      marker of a write under way (etcd only)
//	names/JOB                            which identities hold the names of its tasks
//	history/JOB/g/NUMBER                 an entry about a generation
//	history/JOB/o/NUMBER                 an entry about an order
//	assigners/ID                         a registered assigner (etcd only)
//	lease/...                            leases of consistent mode, not the store's
//
// GENERATION, ATTEMPT and NUMBER are 16 lower-case hex digits, so that order of
// keys is order of numbers; an ATTEMPT is random. Entries of the history are
// numbered without a gap: those about generations by a count in the head, those
// about orders by the order. A job that is deleted leaves its newest orders behind.
//
// A job's generations lie in segments. The first of a segment is kept whole, a
// checkpoint, and each other one as a delta on the one before; so the newest one
// is read as a checkpoint and at most MaxSegment-1 deltas, and a write costs one
// delta. Segments end after MaxSegment generations, or when the deltas together
// would be longer than the checkpoint. Whole segments are dropped, oldest first,
// when the others hold as many generations as are to be kept.
package record

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
)

// Layout names the keys of one store and seals their values.
type Layout struct {
	// Prefix of all keys; empty, or ends with a slash.
	Prefix string
	// StoreID that every assignment here must bear.
	StoreID uint64
	// Compress has whole assignments written compressed. They are read in any case.
	Compress bool
}

// KV is a record as it is kept.
type KV struct {
	Key   string
	Value []byte
}

// ID is the key of the identity.
func (l Layout) ID() string { return l.Prefix + "id" }

// Jobs is the prefix of all configs, heads and overrides, and of nothing else.
func (l Layout) Jobs() string { return l.Prefix + "jobs/" }

// Config is the key of a job's config.
func (l Layout) Config(job string) string { return l.Jobs() + job + "/config" }

// Head is the key of a job's head.
func (l Layout) Head(job string) string { return l.Jobs() + job + "/head" }

// Overrides is the key of a job's overrides.
func (l Layout) Overrides(job string) string { return l.Jobs() + job + "/overrides" }

// NamesKey is the key of the names of a job's tasks. It is not below Jobs, which all processes
// watch.
func NamesKey(l Layout, job string) string { return l.Prefix + "names/" + job }

// History is the prefix of all entries of a job's history.
func (l Layout) History(job string) string { return l.Prefix + "history/" + job + "/" }

// EntryKind is what the entries of a part of the history are about.
type EntryKind byte

// The parts of a history.
const (
	OfGenerations EntryKind = 'g'
	OfOrders      EntryKind = 'o'
)

// Entries is the prefix of one part of the history.
func (l Layout) Entries(job string, k EntryKind) string {
	return l.History(job) + string(k) + "/"
}

// Entry is the key of one entry.
func (l Layout) Entry(job string, k EntryKind, number int64) string {
	return l.Entries(job, k) + hex16(uint64(number))
}

// Outdated is the range of entries that go when one with this number comes and so
// many are kept; ok is false when there are none.
func (l Layout) Outdated(job string, k EntryKind, number int64, keep int) (from, to string, ok bool) {
	first := number - int64(min(max(keep, 1), store.MaxHistory)) + 1
	if first <= 1 {
		return "", "", false
	}
	return l.Entries(job, k), l.Entry(job, k, first), true
}

// GoneAll is the prefix of all tombstones.
func (l Layout) GoneAll() string { return l.Prefix + "gone/" }

// Gone is the key of a job's tombstone.
func (l Layout) Gone(job string) string { return l.GoneAll() + job }

// Leader is the key of a job's lease, which is not the store's: in consistent
// mode writes compare it.
func (l Layout) Leader(job string) string { return l.Prefix + "lease/" + job + "/leader" }

// Generations is the prefix of a job's generations.
func (l Layout) Generations(job string) string { return l.Prefix + "generations/" + job + "/" }

// Generation is the key of one generation.
func (l Layout) Generation(job string, g assignment.Generation) string {
	return l.Generations(job) + hex16(uint64(g))
}

// Chunks is the prefix of all pieces of a job.
func (l Layout) Chunks(job string) string { return l.Prefix + "chunks/" + job + "/" }

// ChunksFrom is where the pieces of a generation, and of those after it, begin.
func (l Layout) ChunksFrom(job string, g assignment.Generation) string {
	return l.Chunks(job) + hex16(uint64(g)) + "/"
}

// AttemptChunks is the prefix of one attempt's pieces.
func (l Layout) AttemptChunks(job string, g assignment.Generation, attempt uint64) string {
	return l.ChunksFrom(job, g) + hex16(attempt) + "/"
}

// AttemptsAll is the prefix of all markers.
func (l Layout) AttemptsAll() string { return l.Prefix + "attempts/" }

// Attempts is the prefix of a job's markers.
func (l Layout) Attempts(job string) string { return l.AttemptsAll() + job + "/" }

// Attempt is the key of one marker.
func (l Layout) Attempt(job string, g assignment.Generation, attempt uint64) string {
	return l.Attempts(job) + hex16(uint64(g)) + "/" + hex16(attempt)
}

// MarkedChunks returns the prefix of the pieces that a marker stands for.
func (l Layout) MarkedChunks(marker string) (prefix string, ok bool) {
	rest, ok := strings.CutPrefix(marker, l.AttemptsAll())
	parts := strings.Split(rest, "/")
	if !ok || len(parts) != 3 || assignment.ValidateJobName(parts[0]) != nil || len(parts[1]) != 16 || len(parts[2]) != 16 {
		return "", false
	}
	return l.Prefix + "chunks/" + rest + "/", true
}

// Assigners is the prefix of the registered assigners.
func (l Layout) Assigners() string { return l.Prefix + "assigners/" }

// Part is which record below Jobs.
type Part uint8

// The records below Jobs.
const (
	PartConfig Part = iota
	PartHead
	PartOverrides
)

// JobOf returns the name in a key below Jobs, and which record the key is of.
func (l Layout) JobOf(key string) (job string, p Part, ok bool) {
	rest, ok := strings.CutPrefix(key, l.Jobs())
	job, kind, _ := strings.Cut(rest, "/")
	p = Part(slices.Index([]string{"config", "head", "overrides"}, kind)) // -1 is none
	ok = ok && p <= PartOverrides && assignment.ValidateJobName(job) == nil
	return job, p, ok
}

// GenerationOf returns the number in a key below Generations.
func (l Layout) GenerationOf(job, key string) (assignment.Generation, bool) {
	rest, ok := strings.CutPrefix(key, l.Generations(job))
	g, err := strconv.ParseUint(rest, 16, 64)
	ok = ok && err == nil && rest == hex16(g) && g > 0 && g <= uint64(assignment.MaxGeneration)
	return assignment.Generation(g), ok
}

// After is the end of the range of all keys that begin with prefix, which ends
// with a slash.
func After(prefix string) string { return prefix[:len(prefix)-1] + "0" }

func hex16(v uint64) string { return fmt.Sprintf("%016x", v) }
