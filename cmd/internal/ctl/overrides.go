package ctl

import (
	"fmt"
	"io"
	"time"

	"github.com/slicer-project/slicer/assignment"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// stampView is who gave an order, when and why.
type stampView struct {
	// Identity is that of the caller's certificate; Who is a comment beside it.
	Identity string    `json:"identity,omitempty"`
	Who      string    `json:"who"`
	Peer     string    `json:"peer,omitempty"`
	At       time.Time `json:"at"`
	Why      string    `json:"why,omitempty"`
	Order    int64     `json:"order"`
}

func newStamp(m *slicerv1.Stamp, order int64) stampView {
	return stampView{Identity: m.GetIdentity(), Who: m.GetWho(), Peer: m.GetPeer(), At: time.UnixMilli(m.GetUnixMs()).UTC(), Why: m.GetWhy(), Order: order}
}

func (s *stampView) describe(now time.Time) string {
	text := fmt.Sprintf("by %s %s ago", whom(s.Identity, s.Who), age(now.Sub(s.At)))
	if s.Why != "" {
		text += ": " + s.Why
	}
	return text
}

// overridesView are the overrides in force.
type overridesView struct {
	Freeze *freezeView `json:"freeze,omitempty"`
	Pins   []pinView   `json:"pins,omitempty"`
	// Excluded tasks are given no slices.
	Excluded []exclusionView `json:"excluded,omitempty"`
	// Drained tasks are, too, until they end.
	Drained []exclusionView `json:"drained,omitempty"`
	// Rollback is the generation whose placement is to be had again.
	Rollback int64 `json:"rollback,omitempty"`
}

type freezeView struct {
	stampView
	Until *time.Time `json:"until,omitempty"`
}

type pinView struct {
	stampView
	Start string `json:"start"`
	End   string `json:"end"`
	Task  string `json:"task"`
}

type exclusionView struct {
	stampView
	Task string `json:"task"`
}

func newPin(p *slicerv1.Pin) *pinView {
	if p == nil {
		return nil
	}
	return &pinView{newStamp(p.Stamp, p.Order), assignment.SliceKey(p.Start).String(), assignment.SliceKey(p.End).String(), p.Task}
}

// newOverrides is nil when no order is in force.
func newOverrides(m *slicerv1.Overrides) *overridesView {
	if m.GetFreeze() == nil && len(m.GetPins()) == 0 && len(m.GetExcluded()) == 0 && len(m.GetDrains()) == 0 && m.GetRollback() == nil {
		return nil
	}
	v := &overridesView{Rollback: m.GetRollback().GetGeneration()}
	if f := m.Freeze; f != nil {
		v.Freeze = &freezeView{stampView: newStamp(f.Stamp, f.Order)}
		if f.UntilUnixMs != 0 {
			until := time.UnixMilli(f.UntilUnixMs).UTC()
			v.Freeze.Until = &until
		}
	}
	for _, p := range m.Pins {
		v.Pins = append(v.Pins, *newPin(p))
	}
	for _, x := range m.Excluded {
		v.Excluded = append(v.Excluded, exclusionView{newStamp(x.Stamp, x.Order), x.Task})
	}
	for _, d := range m.Drains {
		v.Drained = append(v.Drained, exclusionView{newStamp(d.Stamp, d.Order), d.Task})
	}
	return v
}

func (p *pinView) describe(now time.Time) string {
	return fmt.Sprintf("[%s,%s) is pinned to %s %s", p.Start, p.End, p.Task, p.stampView.describe(now))
}

func (v *overridesView) print(w io.Writer, now time.Time) {
	if f := v.Freeze; f != nil {
		switch {
		case f.Until == nil:
			fmt.Fprintf(w, "frozen %s\n", f.describe(now))
		case now.Before(*f.Until):
			fmt.Fprintf(w, "frozen for %s more %s\n", age(f.Until.Sub(now)), f.describe(now))
		default: // the assigner that lifts it has seen it later, or the clocks differ
			fmt.Fprintf(w, "frozen, and soon not any more, %s\n", f.describe(now))
		}
	}
	for _, x := range v.Excluded {
		fmt.Fprintf(w, "%s is excluded %s\n", x.Task, x.describe(now))
	}
	for _, x := range v.Drained {
		fmt.Fprintf(w, "%s is drained %s\n", x.Task, x.describe(now))
	}
	for i := range v.Pins {
		fmt.Fprintln(w, v.Pins[i].describe(now))
	}
	if v.Rollback != 0 {
		fmt.Fprintf(w, "on its way back to generation %d\n", v.Rollback)
	}
}
