package run

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/access/enforce"
)

var levels = map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}

const levelsAllowed = "debug, info, warn or error"

// logging is a log whose least level can be changed while it is written.
type logging struct {
	log   *slog.Logger
	least *slog.LevelVar
	// audit writes to the same log, whatever the level.
	audit *slog.Logger
}

// open makes the log that --log-level and --log-format ask for.
func (f *LogFlags) open(w io.Writer) (*logging, error) {
	level, ok := levels[f.Level]
	if !ok {
		return nil, Usagef("--log-level: %q is not allowed: want %s", assignment.Clip(f.Level, 80), levelsAllowed)
	}
	opts := &slog.HandlerOptions{Level: slog.LevelDebug}
	var h slog.Handler
	switch f.Format {
	case "text":
		h = slog.NewTextHandler(w, opts)
	case "json":
		h = slog.NewJSONHandler(w, opts)
	default:
		return nil, Usagef("--log-format: %q is not allowed: want text or json", assignment.Clip(f.Format, 80))
	}
	least := new(slog.LevelVar)
	least.Set(level)
	return &logging{slog.New(levelled{h, least}), least, slog.New(h)}, nil
}

// levelled is a handler with a least level.
type levelled struct {
	slog.Handler
	least *slog.LevelVar
}

func (h levelled) Enabled(_ context.Context, l slog.Level) bool { return l >= h.least.Level() }

func (h levelled) WithAttrs(attrs []slog.Attr) slog.Handler {
	return levelled{h.Handler.WithAttrs(attrs), h.least}
}

func (h levelled) WithGroup(name string) slog.Handler {
	return levelled{h.Handler.WithGroup(name), h.least}
}

func (l *logging) level() string { return strings.ToLower(l.least.Level().String()) }

// get answers with the level.
func (l *logging) get(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, l.level()) }

// put takes the level that the body names, and leaves a line about it in the log, whatever
// the level was and is.
func (l *logging) put(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 16))
	if err != nil {
		http.Error(w, "log level: the body cannot be read, or is longer than 16 bytes: want "+levelsAllowed, http.StatusBadRequest)
		return
	}
	named := strings.TrimSpace(string(body))
	level, ok := levels[named]
	if !ok {
		http.Error(w, fmt.Sprintf("log level: %q is not allowed: want %s", named, levelsAllowed), http.StatusBadRequest)
		return
	}
	before := l.level()
	l.least.Set(level)
	caller := enforce.HTTPCaller(r)
	l.audit.Info("log level changed", "audit", "changed", "identity", string(caller.Identity), "peer", caller.Address, "from", before, "to", named)
	l.get(w, r)
}
