// Package line is what the conformance kit and a driver say to each other: a line of JSON on the
// driver's standard input is a Request, and the driver answers each with one line on its standard
// output, a Reply, in order. deploy/docs/CONFORMANCE.md describes it for any language.
package line

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Request is one operation. Which fields it has depends on Op.
type Request struct {
	// Op is start, state, hash, owns, handle, changes, drain, started, lookup, pick or close.
	Op string `json:"op"`

	// Of start.
	Job          string   `json:"job,omitempty"`
	Task         string   `json:"task,omitempty"`
	Address      string   `json:"address,omitempty"`
	Zone         string   `json:"zone,omitempty"`
	Starting     bool     `json:"starting,omitempty"`
	ClientID     string   `json:"client_id,omitempty"`
	Distributors []string `json:"distributors,omitempty"`
	Backups      []string `json:"backups,omitempty"`
	// Leases are where a slicelet has leases from; without any it has none.
	Leases    []string `json:"leases,omitempty"`
	CacheFile string   `json:"cache_file,omitempty"`

	// Keys are those of hash, owns and lookup.
	Keys []string `json:"keys,omitempty"`
	// Key and N are those of handle and pick: N requests for Key.
	Key string `json:"key,omitempty"`
	N   int    `json:"n,omitempty"`
}

// Reply is the answer to one operation.
type Reply struct {
	// Error says why the operation has failed; Unsupported, that the implementation does not
	// have it.
	Error       string `json:"error,omitempty"`
	Unsupported bool   `json:"unsupported,omitempty"`

	// Of state: the generation of the assignment in hand, 0 if there is none, and whether a
	// drain has ended.
	Generation int64 `json:"generation,omitempty"`
	Drained    bool  `json:"drained,omitempty"`

	// One for each of Keys: the slice key in 16 hexadecimal digits, whether the task owns it,
	// and the names of the tasks that do.
	SliceKeys []string   `json:"slice_keys,omitempty"`
	Owned     []bool     `json:"owned,omitempty"`
	Owners    [][]string `json:"owners,omitempty"`
	// Picked is how many of N requests would go to which task.
	Picked map[string]int `json:"picked,omitempty"`
	// Changes are what listeners were told since the last time.
	Changes []Change `json:"changes,omitempty"`
}

// Change is one call of a listener: ranges of slice keys, each its start and its end, which is
// not in it.
type Change struct {
	Arrived  [][2]string `json:"arrived,omitempty"`
	Departed [][2]string `json:"departed,omitempty"`
}

// ErrUnsupported is returned for an operation that an implementation does not have.
var ErrUnsupported = errors.New("unsupported")

// MaxLine bounds a line, bytes.
const MaxLine = 4 << 20

// Serve is a driver's loop: it gives each request to do and writes what that returns, until in
// ends or close is answered.
func Serve(in io.Reader, out io.Writer, do func(Request) (Reply, error)) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, MaxLine)
	for lines.Scan() {
		var q Request
		if err := json.Unmarshal(lines.Bytes(), &q); err != nil {
			return fmt.Errorf("request: %w", err)
		}
		r, err := do(q)
		switch {
		case errors.Is(err, ErrUnsupported):
			r = Reply{Unsupported: true}
		case err != nil:
			r = Reply{Error: err.Error()}
		}
		text, err := json.Marshal(r)
		if err != nil {
			return fmt.Errorf("reply: %w", err)
		}
		if _, err := out.Write(append(text, '\n')); err != nil {
			return err
		}
		if q.Op == "close" {
			return nil
		}
	}
	return lines.Err()
}
