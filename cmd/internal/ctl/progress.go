package ctl

import (
	"fmt"
	"strings"
	"time"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// progressView is how far the subscribers of a job have come.
type progressView struct {
	Roles []roleProgress `json:"roles"`
	// Slow are the slowest, at most 16, of as many as SlowTotal says.
	Slow      []slowView `json:"slow,omitempty"`
	SlowTotal uint32     `json:"slow_total"`
}

// roleProgress is how far the clerks, or the slicelets, have come.
type roleProgress struct {
	Role string `json:"role"`
	// Holders are by generation, newest first; 0 stands for none and for all older ones.
	Holders []holdersView `json:"holders"`
	// Reached and Waiting are subscribers that were connected when the newest generation
	// came: those that hold it by now, and those that do not yet.
	Reached uint32 `json:"reached"`
	Waiting uint32 `json:"waiting"`
	// Milliseconds from the write of the newest generation until so many of them
	// held it; null as long as they do not.
	P50MS  *float64 `json:"p50_ms"`
	P99MS  *float64 `json:"p99_ms"`
	LastMS *float64 `json:"last_ms"`
}

type holdersView struct {
	Generation  int64  `json:"generation"`
	Subscribers uint32 `json:"subscribers"`
}

type slowView struct {
	Name        string `json:"name"`
	Distributor string `json:"distributor,omitempty"`
	Generation  int64  `json:"generation"`
	WaitingMS   int64  `json:"waiting_ms"`
}

// newProgress is nil when the server says nothing of it.
func newProgress(m *slicerv1.Progress) *progressView {
	if m == nil {
		return nil
	}
	v := &progressView{Roles: []roleProgress{}, SlowTotal: m.SlowTotal}
	for _, role := range []slicerv1.Role{slicerv1.Role_ROLE_CLERK, slicerv1.Role_ROLE_SLICELET} {
		r := roleProgress{Role: strings.ToLower(strings.TrimPrefix(role.String(), "ROLE_")), Holders: []holdersView{}}
		for _, h := range m.Holders {
			if h.GetRole() == role {
				r.Holders = append(r.Holders, holdersView{h.Generation, h.Subscribers})
			}
		}
		for _, s := range m.Spreads {
			if s.GetRole() == role {
				r.Reached, r.Waiting = s.Reached, s.Waiting
				r.P50MS, r.P99MS, r.LastMS = millis(s.P50Us), millis(s.P99Us), millis(s.LastUs)
			}
		}
		if len(r.Holders) > 0 {
			v.Roles = append(v.Roles, r)
		}
	}
	for _, s := range m.Slow {
		v.Slow = append(v.Slow, slowView{s.GetName(), s.GetDistributorId(), s.GetGeneration(), s.GetWaitingMs()})
	}
	return v
}

func millis(us int64) *float64 {
	if us < 0 {
		return nil
	}
	return new(float64(us) / 1000)
}

// lines say it to people; newest is the generation that every subscriber is to hold.
func (v *progressView) lines(newest int64) (out []string) {
	for _, r := range v.Roles {
		out = append(out, r.line(newest))
	}
	for _, s := range v.Slow {
		line := fmt.Sprintf("slow: %s", s.Name)
		if s.Distributor != "" {
			line += " at " + s.Distributor
		}
		line += ", holds "
		if s.Generation == 0 {
			line += "nothing"
		} else {
			line += fmt.Sprintf("generation %d", s.Generation)
		}
		out = append(out, line+", has not acknowledged for "+age(time.Duration(s.WaitingMS)*time.Millisecond))
	}
	if more := int(v.SlowTotal) - len(v.Slow); more > 0 {
		out = append(out, fmt.Sprintf("slow: %d more", more))
	}
	return out
}

func (r roleProgress) line(newest int64) string {
	var have, total uint32
	var others []string
	for _, h := range r.Holders {
		total += h.Subscribers
		switch {
		case h.Generation >= newest:
			have += h.Subscribers
		case h.Generation == 0:
			others = append(others, fmt.Sprintf("%d hold none or an older one", h.Subscribers))
		default:
			others = append(others, fmt.Sprintf("%d hold %d", h.Subscribers, h.Generation))
		}
	}
	s := fmt.Sprintf("%s: %d of %d hold this generation", r.Role+"s", have, total)
	if len(others) > 0 {
		s += ", " + strings.Join(others, ", ")
	}
	if r.Reached+r.Waiting > 0 {
		s += fmt.Sprintf("; from the write to 50%% %s, to 99%% %s, to the last %s",
			within(r.P50MS), within(r.P99MS), within(r.LastMS))
	}
	return s
}

func within(ms *float64) string {
	if ms == nil {
		return "not yet"
	}
	d := time.Duration(*ms * float64(time.Millisecond))
	if d < time.Second {
		return d.Round(100 * time.Microsecond).String()
	}
	return d.Round(10 * time.Millisecond).String()
}
