package page

import (
	"context"
	"net/http"
	"slices"

	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/cmd/internal/health"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// explanation is why a key is where it is.
type explanation struct {
	Key        string      `json:"key"` // the slice key
	Generation int64       `json:"generation"`
	Start      string      `json:"start"`
	End        string      `json:"end"`
	Owners     []ownerView `json:"owners"`
	Pin        string      `json:"pin,omitempty"` // the task that it is pinned to
	PinWhy     string      `json:"pinWhy,omitempty"`
	Changes    []entryView `json:"changes"` // the newest first
	LeftOut    int         `json:"leftOut,omitempty"`
}

type ownerView struct {
	Task  string `json:"task"`
	Since int64  `json:"since"`           // generation, whose number is when it was made in Unix milliseconds
	Given int64  `json:"given,omitempty"` // generation of changes that gave it the key
	Why   string `json:"why"`
}

const maxChanges = 50

// explain answers for a key, which is text, or for a slice key.
func (p *Page) explain(w http.ResponseWriter, r *http.Request, v viewer) {
	q := r.URL.Query()
	job, text := q.Get("job"), q.Get("key")
	if err := assignment.ValidateJobName(job); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	key := assignment.KeyOf(text)
	err := assignment.CheckKey(text)
	if q.Has("slice") {
		key, err = assignment.ParseSliceKey(q.Get("slice"))
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	select {
	case p.asking <- struct{}{}:
		defer func() { <-p.asking }()
	default:
		http.Error(w, "too many questions at once, ask again", http.StatusServiceUnavailable)
		return
	}
	ctx, cancel := context.WithTimeout(v.as(r.Context()), callWithin)
	defer cancel()
	m, err := p.cfg.Admin.ExplainKey(ctx, &slicerv1.ExplainKeyRequest{Job: job, Key: uint64(key)})
	if err != nil {
		http.Error(w, status.Convert(err).Message(), httpStatus(err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(encode(newExplanation(key, m)))
}

func newExplanation(key assignment.SliceKey, m *slicerv1.ExplainKeyResponse) *explanation {
	x := &explanation{
		Key: key.String(), Generation: m.GetGeneration(), Start: assignment.SliceKey(m.GetStart()).String(), End: assignment.SliceKey(m.GetEnd()).String(),
		Owners: []ownerView{}, Changes: []entryView{}, Pin: m.GetPin().GetTask(), LeftOut: int(m.GetLeftOut()),
	}
	if m.GetPin() != nil {
		x.PinWhy = "by " + health.By(m.GetPin().GetStamp()) + reason(m.GetPin().GetStamp().GetWhy())
	}
	for _, e := range slices.Backward(m.GetChanges()) {
		if len(x.Changes) == maxChanges {
			x.LeftOut += len(m.GetChanges()) - maxChanges
			break
		}
		x.Changes = append(x.Changes, newEntry(e))
	}
	for _, o := range m.GetOwners() {
		view := ownerView{Task: o.GetTask(), Since: o.GetSince(), Given: o.GetGiven(), Why: o.GetUnknown()}
		for _, e := range m.GetChanges() {
			for _, d := range e.GetDecisions() {
				if e.GetGeneration() == o.GetGiven() && d.GetTo() == o.GetTask() {
					view.Why = d.GetKind() + ": " + d.GetReason()
				}
			}
		}
		x.Owners = append(x.Owners, view)
	}
	return x
}

func reason(why string) string {
	if why == "" {
		return ""
	}
	return ": " + why
}
