package page

import (
	"cmp"
	"container/heap"
	"encoding/base64"
	"encoding/binary"
	"math"
	"slices"

	"github.com/slicer-project/slicer/assignment"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// sliceColumns are the slices of one generation, in key order, as little-endian numbers in
// base64.
type sliceColumns struct {
	Error      string   `json:"error,omitempty"`
	Generation int64    `json:"generation,omitempty"`
	Count      int      `json:"count"`
	Tasks      []string `json:"tasks,omitempty"` // of the assignment; owners are positions in it
	// High has the upper 32 bits of each start, Low the lower 31; empty if all are 0.
	High string `json:"high,omitempty"`
	Low  string `json:"low,omitempty"`
	// Replicas is 16 bits a slice; empty if each has one. Owners are of slice after slice, of
	// OwnerBytes each.
	Replicas   string `json:"replicas,omitempty"`
	Owners     string `json:"owners,omitempty"`
	OwnerBytes int    `json:"ownerBytes,omitempty"`
}

func newSliceColumns(a *assignment.Assignment) *sliceColumns {
	c := a.Columns()
	out := &sliceColumns{Generation: int64(a.Generation()), Count: len(c.Starts), Tasks: make([]string, a.NumTasks()), OwnerBytes: 2}
	for i, t := range a.Tasks() {
		out.Tasks[i] = t.Name
	}
	high, low := make([]byte, 0, 4*len(c.Starts)), make([]byte, 0, 4*len(c.Starts))
	fine := uint32(0)
	for _, s := range c.Starts {
		l := uint32(s) & (1<<31 - 1)
		high = binary.LittleEndian.AppendUint32(high, uint32(s>>31))
		low = binary.LittleEndian.AppendUint32(low, l)
		fine |= l
	}
	out.High = base64.StdEncoding.EncodeToString(high)
	if fine != 0 {
		out.Low = base64.StdEncoding.EncodeToString(low)
	}
	if c.Offsets != nil {
		var many []byte
		for i := range len(c.Offsets) - 1 {
			many = binary.LittleEndian.AppendUint16(many, uint16(c.Offsets[i+1]-c.Offsets[i]))
		}
		out.Replicas = base64.StdEncoding.EncodeToString(many)
	}
	if a.NumTasks() > 1<<16 {
		out.OwnerBytes = 4
	}
	owners := make([]byte, 0, out.OwnerBytes*len(c.Owners))
	for _, o := range c.Owners {
		if out.OwnerBytes == 2 {
			owners = binary.LittleEndian.AppendUint16(owners, uint16(o))
		} else {
			owners = binary.LittleEndian.AppendUint32(owners, o)
		}
	}
	out.Owners = base64.StdEncoding.EncodeToString(owners)
	return out
}

// loads are those of the slices of one generation.
type loads struct {
	Generation int64 `json:"generation"`
	// Top is the largest. Each slice has a byte: 0 for no load, 255 where it is not known, and
	// x for Top * 2^((x-254)/8).
	Top    num        `json:"top"`
	Levels string     `json:"levels"` // empty where nothing is known
	Total  num        `json:"total"`
	Keys   []hotKey   `json:"keys"`
	Hot    []hotSlice `json:"hot"`
}

type hotKey struct {
	Key    string   `json:"key"`
	Rate   num      `json:"rate"`
	Owners []string `json:"owners"`
	Many   int      `json:"many"` // owners
}

type hotSlice struct {
	Start  string   `json:"start"`
	End    string   `json:"end"`
	Load   num      `json:"load"`
	Owners []string `json:"owners"`
	Many   int      `json:"many"`
}

const (
	levelUnknown = 255
	levelTop     = 254
	levelsDouble = 8
	// listedKeys and listedSlices are how many of the hottest are named, and namedOwners how
	// many owners of each.
	listedKeys   = 20
	listedSlices = 20
	namedOwners  = 12
)

func newLoads(a *assignment.Assignment, m *slicerv1.InspectSlicesResponse) *loads {
	out := &loads{Generation: m.GetGeneration(), Keys: []hotKey{}, Hot: []hotSlice{}}
	if len(m.GetLoad()) != a.NumSlices() {
		return out
	}
	top, total := float32(0), 0.0
	for _, x := range m.GetLoad() {
		if top = max(top, x); x > 0 {
			total += float64(x)
		}
	}
	out.Top, out.Total = num(top), num(total)
	levels := make([]byte, len(m.GetLoad()))
	for i, x := range m.GetLoad() {
		levels[i] = levelFor(x, top)
	}
	out.Levels = base64.StdEncoding.EncodeToString(levels)
	for i, k := range m.GetHotKey()[:min(len(m.GetHotKey()), len(m.GetHotRate()), listedKeys)] {
		if key := assignment.SliceKey(k); key < assignment.KeyspaceEnd {
			out.Keys = append(out.Keys, hotKey{key.String(), num(m.GetHotRate()[i]), ownersOf(a.Lookup(key)), a.Lookup(key).Len()})
		}
	}
	for _, i := range hottest(m.GetLoad(), listedSlices) {
		s := a.Slice(i)
		out.Hot = append(out.Hot, hotSlice{s.Start.String(), s.End.String(), num(m.GetLoad()[i]), ownersOf(a.Replicas(i)), a.Replicas(i).Len()})
	}
	return out
}

func levelFor(x, top float32) byte {
	switch {
	case x < 0 || x != x:
		return levelUnknown
	case x == 0:
		return 0
	}
	return byte(max(1, levelTop-math.Round(levelsDouble*math.Log2(float64(top)/float64(x)))))
}

func ownersOf(r assignment.Replicas) []string {
	names := make([]string, 0, min(r.Len(), namedOwners))
	for i := range min(r.Len(), namedOwners) {
		names = append(names, r.At(i).Name)
	}
	return names
}

// hottest are the numbers of the n slices with most load, the hottest first.
func hottest(load []float32, n int) []int {
	h := &coolest{load: load}
	for i, x := range load {
		switch {
		case !(x > 0):
		case len(h.at) < n:
			heap.Push(h, i)
		case x > load[h.at[0]]:
			h.at[0] = i
			heap.Fix(h, 0)
		}
	}
	slices.SortFunc(h.at, func(a, b int) int { return cmp.Or(cmp.Compare(load[b], load[a]), cmp.Compare(a, b)) })
	return h.at
}

// coolest is a heap with the slice of least load on top.
type coolest struct {
	load []float32
	at   []int
}

func (h *coolest) Len() int           { return len(h.at) }
func (h *coolest) Less(i, j int) bool { return h.load[h.at[i]] < h.load[h.at[j]] }
func (h *coolest) Swap(i, j int)      { h.at[i], h.at[j] = h.at[j], h.at[i] }
func (h *coolest) Push(x any)         { h.at = append(h.at, x.(int)) }
func (h *coolest) Pop() any {
	last := h.at[len(h.at)-1]
	h.at = h.at[:len(h.at)-1]
	return last
}
