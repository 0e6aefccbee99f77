package etcdlease

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/lease"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Records are a job's guard and bridge at one revision, with what is needed to find out
// later whether they were so.
type Records struct {
	lease.Seen
	// Fingerprint is of the records as stored: their values, the revisions at which they
	// were written, and the random number that changes with them. It is not 0.
	Fingerprint uint64
}

// Acquired is what became of an acquire.
type Acquired struct {
	Records
	OK bool
	// Created is the revision at which the key that holds the claim was made, if OK.
	Created int64
}

// Memory is what the holder of a session has been told of a job, and holds in it. The
// holder keeps it, since a Pool that carries the session on has not seen any of that:
// an etcd that has gone back to an earlier state is found out by it alone.
type Memory struct {
	Job string
	// Revision and Fingerprint are of the newest records that were told; 0 for none.
	Revision    int64
	Fingerprint uint64
	// Guard and Bridge are held; the zero value is nothing.
	Guard, Bridge Holding
}

// Holding is a claim that is held, by a key made at a revision.
type Holding struct {
	Claim   lease.Claim
	Created int64
}

// CheckMemory reports whether a session's memory can be one: at most lease.MaxJobs jobs, each
// once, and revisions up to the highest that was told.
func CheckMemory(revision int64, jobs []Memory) error {
	bad := func(field string, value any, allowed string) error {
		return &assignment.FieldError{Field: field, Value: value, Allowed: allowed}
	}
	if revision < 1 {
		return bad("revision", revision, "at least 1: what the opening of the session told")
	}
	if len(jobs) > lease.MaxJobs {
		return bad("jobs", len(jobs), fmt.Sprintf("at most %d", lease.MaxJobs))
	}
	seen := map[string]bool{}
	for _, j := range jobs {
		if err := assignment.ValidateJobName(j.Job); err != nil {
			return err
		}
		if seen[j.Job] {
			return bad("jobs", j.Job, "each once")
		}
		seen[j.Job] = true
		if j.Revision < 0 || j.Revision > revision {
			return bad("jobs.revision", j.Revision, "0 to the revision of the whole")
		}
		for _, h := range []Holding{j.Guard, j.Bridge} {
			c := h.Claim
			if h == (Holding{}) {
				continue
			}
			if c.From < 0 || c.To <= c.From || c.To > assignment.MaxGeneration {
				return bad("jobs.claim", c, "generations, to after from")
			}
			if h.Created < 1 || h.Created > revision {
				return bad("jobs.created", h.Created, "1 to the revision of the whole")
			}
		}
		if j.Guard.Claim.Bridge() || j.Bridge != (Holding{}) && !j.Bridge.Claim.Bridge() {
			return bad("jobs", j.Job, "a guard as the guard, a bridge as the bridge")
		}
	}
	return nil
}

func (r records) fingerprint() uint64 {
	sum := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(r)) {
		fmt.Fprintf(sum, "%q %q %d\n", key, r[key].value, r[key].mod)
	}
	return max(binary.BigEndian.Uint64(sum.Sum(nil)), 1)
}

// recall makes sure, over a renewer's connection, that etcd still has what the holder of a
// session has been told and holds. What it finds otherwise is the end of this session
// alone: it is its holder that says what was, and it might say anything. It returns what is held.
func (k *renewer) recall(ctx context.Context, m mark, id clientv3.LeaseID, revision int64, jobs []Memory) (held []Memory, err error) {
	select {
	case k.recalls <- struct{}{}:
		defer func() { <-k.recalls }()
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-k.over:
		return nil, k.lost()
	}
	if err := k.reach(ctx, revision); err != nil {
		return nil, err
	}
	for _, j := range jobs {
		h, err := k.recallJob(ctx, m, id, revision, j)
		if err != nil {
			return nil, fmt.Errorf("job %s: %w", j.Job, err)
		}
		held = append(held, h)
	}
	return held, nil
}

// reach makes sure that a revision has been, and is not compacted away.
func (k *renewer) reach(ctx context.Context, revision int64) error {
	if low := k.readable.Load(); low != 0 && low <= revision && revision <= k.s.past.mark().revision {
		return nil
	}
	_, err := k.client.Get(ctx, k.s.suspended, clientv3.WithPrefix(), clientv3.WithCountOnly(), clientv3.WithRev(revision))
	switch {
	case errors.Is(err, rpctypes.ErrCompacted):
		return fmt.Errorf("%w: revision %d, which it was at before, is compacted away", lease.ErrWentBack, revision)
	case errors.Is(err, rpctypes.ErrFutureRev):
		return fmt.Errorf("%w: it has not come to revision %d yet, where it was before", lease.ErrWentBack, revision)
	case err != nil:
		return explain(ctx, err)
	}
	if low := k.readable.Load(); low == 0 || revision < low {
		k.readable.CompareAndSwap(low, revision)
	}
	return nil
}

func (k *renewer) recallJob(ctx context.Context, m mark, id clientv3.LeaseID, revision int64, j Memory) (Memory, error) {
	at := k.s.keys(j.Job)
	guard, bridge := at.holder(lease.Claim{To: 1}, id), at.holder(lease.Claim{From: 1, To: 2}, id)
	resp, err := k.client.Txn(ctx).Then(clientv3.OpGet(at.records(), clientv3.WithPrefix()), clientv3.OpGet(guard), clientv3.OpGet(bridge)).Commit()
	if err != nil {
		return j, explain(ctx, err)
	}
	if err := k.s.passed(ctx, k.client, m, resp.Header.Revision); err != nil {
		return j, err
	}
	if resp.Header.Revision < revision {
		return j, fmt.Errorf("%w: it is at revision %d and was at %d", lease.ErrWentBack, resp.Header.Revision, revision)
	}
	held := Memory{Job: j.Job}
	for i, h := range []struct {
		key  string
		told Holding
		is   *Holding
	}{{guard, j.Guard, &held.Guard}, {bridge, j.Bridge, &held.Bridge}} {
		if kvs := got(resp, i+1).Kvs; len(kvs) == 1 {
			if err := h.is.Claim.UnmarshalText(kvs[0].Value); err != nil {
				return j, fmt.Errorf("%s: %w", h.key, err)
			}
			h.is.Created = kvs[0].CreateRevision
		}
		if h.told != (Holding{}) && h.told != *h.is {
			return j, fmt.Errorf("%w: %s is not what the session has been told it holds", lease.ErrWentBack, h.key)
		}
	}
	if j.Revision == 0 || at.recordsIn(got(resp, 0)).fingerprint() == j.Fingerprint {
		return held, nil
	}
	then, err := k.client.Get(ctx, at.records(), clientv3.WithPrefix(), clientv3.WithRev(j.Revision))
	switch {
	case errors.Is(err, rpctypes.ErrCompacted):
		return j, errCompacted
	case err != nil:
		return j, explain(ctx, err)
	case at.recordsIn(then).fingerprint() != j.Fingerprint:
		return j, fmt.Errorf("%w: the records were others at revision %d", lease.ErrWentBack, j.Revision)
	}
	return held, nil
}
