package wire

import (
	"fmt"
	"math"
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
	MaxRate = 1e15
)

// LoadToProto never fails.
func LoadToProto(l *assignment.Load) *slicerv1.LoadReport {
	m := &slicerv1.LoadReport{
		Generation: int64(l.Generation), WindowSeconds: l.Window.Seconds(),
		Rate: floats32(l.Rate), Parts: uint32(max(l.Parts, 1)), PartRate: floats32(l.PartRate),
		MisroutedRate: float32(l.Misrouted), ShedRate: float32(l.Shed), TotalRate: float32(l.Total),
		CpuUtilization: float32(l.CPU),
	}
	m.RangeSkip, m.RangeWidth = rangesToColumns(l.Ranges)
	for _, h := range l.Hot {
		m.HotKey = append(m.HotKey, uint64(h.Key))
		m.HotRate = append(m.HotRate, float32(h.Rate))
		m.HotError = append(m.HotError, float32(h.Error))
	}
	return m
}

// LoadFromProto refuses what is out of bounds: ranges out of order, columns of
// different lengths, rates that are negative, not finite or above MaxRate.
func LoadFromProto(m *slicerv1.LoadReport) (*assignment.Load, error) {
	if m == nil {
		return nil, malformed("load report", fmt.Errorf("missing"))
	}
	n, parts := len(m.RangeSkip), int(max(m.Parts, 1))
	switch {
	case n > MaxReportRanges || len(m.Rate) != n:
		return nil, malformed("load report", fmt.Errorf("%d rates for %d ranges, at most %d are allowed", len(m.Rate), n, MaxReportRanges))
	case m.Parts > MaxParts:
		return nil, malformed("load report", fmt.Errorf("%d parts a range, at most %d are allowed", m.Parts, MaxParts))
	case len(m.PartRate) != 0 && len(m.PartRate) != n*parts:
		return nil, malformed("load report", fmt.Errorf("%d part rates for %d ranges of %d parts", len(m.PartRate), n, parts))
	case len(m.HotKey) > MaxHotKeys || len(m.HotRate) != len(m.HotKey) || len(m.HotError) != len(m.HotKey):
		return nil, malformed("load report", fmt.Errorf("%d hot keys with %d rates and %d errors, at most %d are allowed", len(m.HotKey), len(m.HotRate), len(m.HotError), MaxHotKeys))
	case !(m.WindowSeconds >= 0 && m.WindowSeconds <= (24*time.Hour).Seconds()):
		return nil, malformed("load report", fmt.Errorf("window of %v seconds, 0 to a day is allowed", m.WindowSeconds))
	}
	l := &assignment.Load{
		Generation: assignment.Generation(m.Generation),
		Window:     time.Duration(m.WindowSeconds * float64(time.Second)),
		Parts:      parts, Misrouted: float64(m.MisroutedRate), Shed: float64(m.ShedRate),
		Total: float64(m.TotalRate), CPU: float64(m.CpuUtilization),
	}
	var err error
	if l.Ranges, err = columnsToRanges(m.RangeSkip, m.RangeWidth); err != nil {
		return nil, malformed("load report", err)
	}
	if l.Rate, err = floats64(m.Rate); err == nil {
		l.PartRate, err = floats64(m.PartRate)
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
	return l, nil
}

func checkRate(r float64) error {
	if !(r >= 0 && r <= MaxRate) {
		return fmt.Errorf("rate %v, 0 to %g is allowed", r, MaxRate)
	}
	return nil
}

func floats32(v []float64) []float32 {
	out := make([]float32, len(v))
	for i, x := range v {
		out[i] = float32(math.Min(x, math.MaxFloat32))
	}
	return out
}

func floats64(v []float32) ([]float64, error) {
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
