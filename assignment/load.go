package assignment

import "time"

// Load is what one task measured over a window: rates in load units a second
// (requests, busy seconds or custom units).
type Load struct {
	// Generation of the assignment whose slices these are.
	Generation Generation
	Window     time.Duration
	// Ranges are apart and in key order; Rate has one value each.
	Ranges []Slice
	Rate   []float64
	// Parts is how many equal parts each range is metered in, at least 1.
	// PartRate holds as many values a range, range after range; nil when Parts is 1.
	Parts    int
	PartRate []float64
	// Hot are the heaviest keys, heaviest first.
	Hot []HotKey
	// Misrouted is the rate of requests for keys that the task does not own and
	// Shed that of requests it refused for want of room.
	Misrouted, Shed float64
	// Unserved is what of Total was asked for and not served, as there was no room for it.
	Unserved float64
	// Total is all that the task carried, misrouted requests included.
	Total float64
	// CPU is the process's CPU as a share of what it may use, 0 to 1; 0 when not known.
	CPU float64
	// Cores and Memory are what the process uses: CPU in cores, and resident bytes; 0 when
	// not known.
	Cores, Memory float64
}

// HotKey is a key that carries a large share of a task's load.
type HotKey struct {
	Key  SliceKey
	Rate float64
	// Error is how much of Rate may be due to other keys (space-saving sketch).
	Error float64
}
