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
		MisroutedRate: rate32(l.Misrouted), ShedRate: rate32(l.Shed), UnservedRate: rate32(l.Unserved), TotalRate: rate32(l.Total),
		CpuUtilization: rate32(l.CPU), CpuCores: rate32(l.Cores), MemoryBytes: rate32(l.Memory),
	}
	m.RangeSkip, m.RangeWidth = rangesToColumns(l.Ranges)
	for _, h := range l.Hot {
		m.HotKey = append(m.HotKey, uint64(h.Key))
		m.HotRate = append(m.HotRate, rate32(h.Rate))
		m.HotError = append(m.HotError, rate32(h.Error))
	}
	return m
}

// LoadFromProto refuses what CheckLoad refuses.
func LoadFromProto(m *slicerv1.LoadReport) (*assignment.Load, error) {
	if err := CheckLoad(m); err != nil {
		return nil, err
	}
	l := &assignment.Load{
		Generation: assignment.Generation(m.Generation),
		Window:     time.Duration(math.Round(m.WindowSeconds * float64(time.Second))),
		Parts:      int(max(m.Parts, 1)), Misrouted: float64(m.MisroutedRate), Shed: float64(m.ShedRate), Unserved: float64(m.UnservedRate),
		Total: float64(m.TotalRate), CPU: float64(m.CpuUtilization), Cores: float64(m.CpuCores), Memory: float64(m.MemoryBytes),
		Ranges: columnsToRanges(m.RangeSkip, m.RangeWidth), Rate: rates64(m.Rate),
	}
	if l.Parts > 1 {
		l.PartRate = rates64(m.PartRate)
	}
	for i, k := range m.HotKey {
		l.Hot = append(l.Hot, assignment.HotKey{Key: assignment.SliceKey(k), Rate: float64(m.HotRate[i]), Error: float64(m.HotError[i])})
	}
	slices.SortStableFunc(l.Hot, func(a, b assignment.HotKey) int { return cmp.Compare(b.Rate, a.Rate) })
	return l, nil
}

// CheckLoad refuses what is out of bounds: empty ranges or some past the keyspace,
// columns of different lengths, rates that are negative, not finite or above MaxRate. It
// is for parts that pass the report on: it makes nothing of it.
func CheckLoad(m *slicerv1.LoadReport) error {
	if m == nil {
		return malformed("load report", errMissing)
	}
	if err := checkLoad(m); err != nil {
		return malformed("load report", err)
	}
	return nil
}

func checkLoad(m *slicerv1.LoadReport) error {
	n, parts := len(m.RangeSkip), int(max(m.Parts, 1))
	switch {
	case n > MaxReportRanges || len(m.Rate) != n:
		return fmt.Errorf("%d rates for %d ranges, at most %d are allowed", len(m.Rate), n, MaxReportRanges)
	case m.Parts > MaxParts:
		return fmt.Errorf("%d parts a range, at most %d are allowed", m.Parts, MaxParts)
	case len(m.PartRate) != n*parts && (parts > 1 || len(m.PartRate) != 0):
		return fmt.Errorf("%d part rates for %d ranges of %d parts", len(m.PartRate), n, parts)
	case len(m.HotKey) > MaxHotKeys || len(m.HotRate) != len(m.HotKey) || len(m.HotError) != len(m.HotKey):
		return fmt.Errorf("%d hot keys with %d rates and %d errors, at most %d are allowed", len(m.HotKey), len(m.HotRate), len(m.HotError), MaxHotKeys)
	case m.Generation < 0:
		return fmt.Errorf("generation %d, 0 or more is allowed", m.Generation)
	case !(m.WindowSeconds >= 0 && m.WindowSeconds <= (24*time.Hour).Seconds()):
		return fmt.Errorf("window of %v seconds, 0 to a day is allowed", m.WindowSeconds)
	}
	if err := checkColumns(m.RangeSkip, m.RangeWidth); err != nil {
		return err
	}
	for i, k := range m.HotKey {
		if k >= uint64(assignment.KeyspaceEnd) {
			return fmt.Errorf("hot key %d is past the keyspace", i)
		}
	}
	scalars := [...]float32{m.MisroutedRate, m.ShedRate, m.UnservedRate, m.TotalRate, m.CpuUtilization, m.CpuCores, m.MemoryBytes}
	for _, rates := range [...][]float32{m.Rate, m.PartRate, m.HotRate, m.HotError, scalars[:]} {
		for _, r := range rates {
			if !(r >= 0 && r <= MaxRate) {
				return fmt.Errorf("rate %v, 0 to %g is allowed", r, float64(MaxRate))
			}
		}
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

func rates64(v []float32) []float64 {
	if len(v) == 0 {
		return nil
	}
	out := make([]float64, len(v))
	for i, x := range v {
		out[i] = float64(x)
	}
	return out
}
