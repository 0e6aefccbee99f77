package clerk

import (
	"fmt"

	"github.com/cespare/xxhash/v2"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/loadbalance/subset"
)

// SubsetConfig says which of the job's tasks a client keeps connections to, when
// connecting every client to every task would be too many connections
// ("Reinventing Backend Subsetting at Google", Communications of the ACM 66(5),
// 2023). The algorithm is subset.Rocksteadier. All clients of a job should have the same
// size.
type SubsetConfig struct {
	// Size is how many tasks are in the subset, 0 to 16,777,216; all if there are
	// fewer. 0, the default, is all: up to some dozens of tasks that is what one
	// wants. For more, 20 is usual (it is the article's example).
	Size int
	// Index is the client's number among the job's clients, dense from 0 (such as its
	// ordinal in a StatefulSet) and below 16,777,216. No two clients of the job should
	// have the same. With nil the control plane gives one, the smallest free, which stays
	// the client's for as long as it lives; with a CacheFile and a ClientID also when it
	// is started again. Until it has come, or when none does because only a Backup
	// Distributor is there, the client goes by a provisional one that is derived from its
	// id.
	Index *int
}

// chooser is a SubsetConfig that makes sense, and an index to start with. Pure.
type chooser struct {
	size        int // 0 is all
	provisional int
}

func newChooser(cfg SubsetConfig, clientID string) (chooser, error) {
	c := chooser{size: cfg.Size, provisional: provisionalIndex(clientID)}
	if cfg.Size < 0 || cfg.Size > subset.MaxTasks {
		return chooser{}, &assignment.FieldError{Field: "subset size", Value: cfg.Size, Allowed: fmt.Sprintf("0 (all tasks) to %d", subset.MaxTasks)}
	}
	if i := cfg.Index; i != nil && (*i < 0 || *i >= subset.MaxTasks) {
		return chooser{}, &assignment.FieldError{Field: "subset index", Value: *i, Allowed: fmt.Sprintf("0 to %d, or nil for one from the control plane", subset.MaxTasks-1)}
	}
	return c, nil
}

// provisionalIndex is what a client goes by as long as it has not been given an
// index. It is as good as a random one: the subset has the right size, and only
// the balance among servers is that of chance.
func provisionalIndex(clientID string) int {
	return int(xxhash.Sum64String(clientID) % subset.MaxTasks)
}

// index is the one to go by, where the client has that one, or none if it is
// negative. known is false for a provisional one.
func (c *chooser) index(has int) (index int, known bool) {
	if has >= 0 {
		return has, true
	}
	return c.provisional, false
}
