package wire

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/slicer-project/slicer/assignment"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// Bounds of a load report.
const (
	MaxParts   = 64
	MaxHotKeys = 1024
	// MaxReportRanges is the most ranges that one task reports on.
	MaxReportRanges = 1 << 17
	// MaxRate bounds a rate: beyond it a report is nonsense.
	MaxRate = 1 << 50
)

// LoadToProto never fails. Rates that no receiver would take, from a broken
// measurement of the application's, are sent as the nearest that it takes: NaN
// and negative ones as 0, large ones as MaxRate. One of them does not cost the
// whole report.
func LoadToProto(l *assignment.Load) *slicerv1.LoadReport {
	m := &slicerv1.LoadReport{
		Generation: int64(l.Generation), WindowSeconds: l.Window.Seconds(),
		Rate: rates32(l.Rate), Parts: uint32(max(l.Parts, 1)), PartRate: rates32(l.PartRate),
		MisroutedRate: rate32(l.Misrouted), ShedRate: rate32(l.Shed), TotalRate: rate32(l.Total),
		CpuUtilization: rate32(l.CPU),
	}
	m.RangeSkip, m.RangeWidth = rangesToColumns(l.Ranges)
	for _, h := range l.Hot {
		m.HotKey = append(m.HotKey, uint64(h.Key))
		m.HotRate = append(m.HotRate, rate32(h.Rate))
		m.HotError = append(m.HotError, rate32(h.Error))
	}
	return m
}

// LoadFromProto refuses what is out of bounds: empty ranges or some past the
// keyspace, columns of different lengths, rates that are negative, not finite or
// above MaxRate.
func LoadFromProto(m *slicerv1.LoadReport) (*assignment.Load, error) {
	if m == nil {
		return nil, malformed("load report", errMissing)
	}
	n, parts := len(m.RangeSkip), int(max(m.Parts, 1))
	switch {
	case n > MaxReportRanges || len(m.Rate) != n:
		return nil, malformed("load report", fmt.Errorf("%d rates for %d ranges, at most %d are allowed", len(m.Rate), n, MaxReportRanges))
	case m.Parts > MaxParts:
		return nil, malformed("load report", fmt.Errorf("%d parts a range, at most %d are allowed", m.Parts, MaxParts))
	case len(m.PartRate) != n*parts && (parts > 1 || len(m.PartRate) != 0):
		return nil, malformed("load report", fmt.Errorf("%d part rates for %d ranges of %d parts", len(m.PartRate), n, parts))
	case len(m.HotKey) > MaxHotKeys || len(m.HotRate) != len(m.HotKey) || len(m.HotError) != len(m.HotKey):
		return nil, malformed("load report", fmt.Errorf("%d hot keys with %d rates and %d errors, at most %d are allowed", len(m.HotKey), len(m.HotRate), len(m.HotError), MaxHotKeys))
	case m.Generation < 0:
		return nil, malformed("load report", fmt.Errorf("generation %d, 0 or more is allowed", m.Generation))
	case !(m.WindowSeconds >= 0 && m.WindowSeconds <= (24*time.Hour).Seconds()):
		return nil, malformed("load report", fmt.Errorf("window of %v seconds, 0 to a day is allowed", m.WindowSeconds))
	}
	l := &assignment.Load{
		Generation: assignment.Generation(m.Generation),
		Window:     time.Duration(math.Round(m.WindowSeconds * float64(time.Second))),
		Parts:      parts, Misrouted: float64(m.MisroutedRate), Shed: float64(m.ShedRate),
		Total: float64(m.TotalRate), CPU: float64(m.CpuUtilization),
	}
	var err error
	if l.Ranges, err = columnsToRanges(m.RangeSkip, m.RangeWidth); err != nil {
		return nil, malformed("load report", err)
	}
	if l.Rate, err = rates64(m.Rate); err == nil && parts > 1 {
		l.PartRate, err = rates64(m.PartRate)
	}
	for i := 0; err == nil && i < len(m.HotKey); i++ {
		h := assignment.HotKey{Key: assignment.SliceKey(m.HotKey[i]), Rate: float64(m.HotRate[i]), Error: float64(m.HotError[i])}
		if h.Key >= assignment.KeyspaceEnd {
			err = fmt.Errorf("hot key %d is past the keyspace", i)
		} else if err = checkRate(h.Rate); err == nil {
			err = checkRate(h.Error)
		}
		l.Hot = append(l.Hot, h)
	}
	for _, r := range []float64{l.Misrouted, l.Shed, l.Total, l.CPU} {
		if err == nil {
			err = checkRate(r)
		}
	}
	if err != nil {
		return nil, malformed("load report", err)
	}
	slices.SortStableFunc(l.Hot, func(a, b assignment.HotKey) int { return cmp.Compare(b.Rate, a.Rate) })
	return l, nil
}

func checkRate(r float64) error {
	if !(r >= 0 && r <= MaxRate) {
		return fmt.Errorf("rate %v, 0 to %g is allowed", r, float64(MaxRate))
	}
	return nil
}

func rate32(x float64) float32 {
	if !(x > 0) {
		return 0
	}
	return float32(min(x, MaxRate))
}

func rates32(v []float64) []float32 {
	out := make([]float32, len(v))
	for i, x := range v {
		out[i] = rate32(x)
	}
	return out
}

func rates64(v []float32) ([]float64, error) {
	if len(v) == 0 {
		return nil, nil
	}
	out := make([]float64, len(v))
	for i, x := range v {
		out[i] = float64(x)
		if err := checkRate(out[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}
