package pebblestore

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store/internal/record"
)

// Config says how a store behaves; zero values stand for the defaults.
type Config struct {
	// Keep is how many generations of a job stay readable, 2 to 1024, default 64.
	Keep int
	// Compress has whole assignments written compressed, which takes a quarter of the bytes or
	// less. What opens the store later must be of a version that reads them.
	Compress bool
	// Timeout bounds a call whose ctx has no deadline: 100 ms to 10 min, default 5 s.
	Timeout time.Duration
	// Logger may be nil.
	Logger *slog.Logger

	fs vfs.FS // what tests put in the place of the disk

	existing, readOnly bool // of a Medium: there has to be a store; nothing is written
}

// check fills in the defaults and names the first field that is not allowed.
func (c *Config) check() error {
	if c.Keep == 0 {
		c.Keep = 64
	}
	if c.Timeout == 0 {
		c.Timeout = 5 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.fs == nil {
		c.fs = vfs.Default
	}
	switch {
	case c.Keep < 2 || c.Keep > record.MaxKeep:
		return &assignment.FieldError{Field: "kept generations", Value: c.Keep, Allowed: fmt.Sprintf("2 to %d", record.MaxKeep)}
	case c.Timeout < 100*time.Millisecond || c.Timeout > 10*time.Minute:
		return &assignment.FieldError{Field: "timeout", Value: c.Timeout, Allowed: "100ms to 10m"}
	}
	return nil
}
