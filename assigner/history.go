package assigner

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// maxHistoryBytes bounds an answer: clients take 4 MiB.
const maxHistoryBytes = 3 << 20

// history reads what is kept of a job's history, if the caller may. Entries that are damaged are
// missing, and named in the log.
func (v adminService) history(ctx context.Context, name string) (job store.Job, home *storeWatch, all []store.Entry, err error) {
	if job, home, err = v.find(ctx, v.caller(ctx), assignment.Read, name); err != nil {
		return job, home, nil, err
	}
	all, err = home.history(ctx, name)
	return job, home, all, err
}

// pastOf reads what is kept of the history of a job that was deleted.
func (a *Assigner) pastOf(ctx context.Context, name string) (all []store.Entry, err error) {
	for _, s := range a.stores {
		if all, err = s.history(ctx, name); !errors.Is(err, store.ErrNotFound) {
			break
		}
	}
	return all, err
}

func (s *storeWatch) history(ctx context.Context, name string) ([]store.Entry, error) {
	all, err := s.backend.History(ctx, name, store.MaxHistory)
	if errors.Is(err, store.ErrCorrupt) {
		s.log.Error("entries left out of a history", "job", name, "error", err)
		err = nil
	}
	return all, err
}

// told is an entry as clients get it: without the tasks' penalties, which are for the
// assigner that takes the job over.
func told(e store.Entry) *slicerv1.HistoryEntry {
	e.Penalties = nil
	return store.EntryToProto(e)
}

// GetHistory implements AdminService.
func (v adminService) GetHistory(ctx context.Context, m *slicerv1.GetHistoryRequest) (*slicerv1.GetHistoryResponse, error) {
	ctx, done, err := v.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if m.GetLimit() > 2*store.MaxHistory {
		return nil, statusOf(&assignment.FieldError{Field: "limit", Value: m.GetLimit(), Allowed: fmt.Sprintf("1 to %d, or 0 for all that fit", 2*store.MaxHistory)})
	}
	_, _, all, err := v.history(ctx, m.GetJob())
	if errors.Is(err, store.ErrNotFound) {
		if past, gone := v.a.pastOf(ctx, m.GetJob()); !errors.Is(gone, store.ErrNotFound) {
			all, err = past, gone
		}
	}
	if err != nil {
		return nil, statusOf(err)
	}
	first, size := len(all), 0
	resp := &slicerv1.GetHistoryResponse{}
	for first > 0 && (m.GetLimit() == 0 || len(resp.Entries) < int(m.GetLimit())) {
		e := told(all[first-1])
		if size += proto.Size(e); size > maxHistoryBytes {
			break
		}
		first--
		resp.Entries = append(resp.Entries, e)
	}
	slices.Reverse(resp.Entries)
	resp.LeftOut = uint32(first)
	return resp, nil
}

// ExplainKey implements AdminService.
func (v adminService) ExplainKey(ctx context.Context, m *slicerv1.ExplainKeyRequest) (*slicerv1.ExplainKeyResponse, error) {
	ctx, done, err := v.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	k := assignment.SliceKey(m.GetKey())
	if k >= assignment.KeyspaceEnd {
		return nil, statusOf(&assignment.FieldError{Field: "key", Value: k.String(), Allowed: "below " + assignment.KeyspaceEnd.String()})
	}
	job, home, all, err := v.history(ctx, m.GetJob())
	if err != nil {
		return nil, statusOf(err)
	}
	a, err := home.backend.Read(ctx, job.Config.Name)
	if errors.Is(err, store.ErrNotFound) {
		return nil, status.Errorf(codes.NotFound, "job %q: it has no assignment yet", job.Config.Name)
	}
	if err != nil {
		return nil, statusOf(err)
	}
	resp := explain(a, all, k)
	c, err := home.backend.Overrides(ctx, job.Config.Name)
	if err != nil {
		return nil, statusOf(err)
	}
	for _, p := range c.Pins {
		if p.Slice.Contains(k) {
			resp.Pin = store.PinToProto(p)
		}
	}
	return resp, nil
}

// explain finds the decisions of a history that put a key where it is.
func explain(a *assignment.Assignment, all []store.Entry, k assignment.SliceKey) *slicerv1.ExplainKeyResponse {
	i := a.Find(k)
	s, r := a.Slice(i), a.Replicas(i)
	resp := &slicerv1.ExplainKeyResponse{Generation: int64(a.Generation()), Start: uint64(s.Start), End: uint64(s.End)}
	given := make([]int64, r.Len())           // the newest generation that gave the key to each owner
	short := map[assignment.Generation]bool{} // whose decisions are not all kept
	size := 0
	for _, e := range slices.Backward(all) {
		if e.Action != "" || e.Generation > a.Generation() {
			continue
		}
		resp.Oldest, resp.OldestUnixMs = int64(e.Generation), e.When.UnixMilli()
		short[e.Generation] = e.LeftOut > 0
		var on []store.Decision
		for _, d := range e.Decisions {
			if d.Slice.Contains(k) {
				on = append(on, d)
			}
		}
		if on == nil {
			continue
		}
		e.Decisions, e.LeftOut = on, 0
		change := told(e)
		if size += proto.Size(change); size > maxHistoryBytes {
			resp.LeftOut++
			continue
		}
		resp.Changes = append(resp.Changes, change)
		for _, d := range on {
			for j := range given {
				if given[j] == 0 && d.To == r.At(j).Name {
					given[j] = int64(e.Generation)
				}
			}
		}
	}
	slices.Reverse(resp.Changes)
	for j := range given {
		since := r.Since(j)
		o := &slicerv1.KeyOwner{Task: r.At(j).Name, Since: int64(since), Given: given[j]}
		switch {
		case o.Given != 0:
		case resp.Oldest == 0:
			o.Unknown = "no history is kept yet"
		case resp.LeftOut > 0:
			o.Unknown = fmt.Sprintf("the %d oldest changes are left out here for want of room", resp.LeftOut)
		case short[since]:
			o.Unknown = fmt.Sprintf("generation %d gave it the key, by a decision that was left out of the history for want of room", since)
		case o.Since >= resp.Oldest:
			o.Unknown = "by a decision that is not kept"
		default:
			o.Unknown = fmt.Sprintf("that is older than the history, which goes back to generation %d", resp.Oldest)
		}
		resp.Owners = append(resp.Owners, o)
	}
	return resp
}
