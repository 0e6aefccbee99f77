// Command actor is the application of a judged run: processes with slicelets
// whose owners keep registers in memory, processes with clients of those or with
// callers that only want to be served, and the store that registers are written through to. Each writes down what it sees.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/slicer-project/slicer/test/system/judge/history"
)

// Config comes in the environment, as JSON, in SLICER_ACTOR.
type Config struct {
	Role string // slicelets, clients, callers or store
	Name string // of the process
	Logs string // the directory
	Job  string

	Distributors, Backups []string
	Etcd                  []string
	Fronts                []string // of etcd, instead of it
	Addresses             []string // of slicelets, one each; or of the store
	Store                 string   // its address
	TTL                   time.Duration
	Seed                  uint64
	Probes, Registers     int
	// PerSecond is how many operations a client process begins, or a caller.
	PerSecond int
	// Callers is how many a process has; Shift is how often other keys become hot.
	Callers int
	Shift   time.Duration
	// Recycle is how long a slicelet lives on average until it is drained and
	// another takes its name and address; 0 is for ever.
	Recycle time.Duration
	// Think is how long an owner thinks between its check and its write, at most.
	Think time.Duration
	// IgnoreTokens makes the store take every write.
	IgnoreTokens bool
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "actor:", err)
		os.Exit(1)
	}
}

func run() error {
	var cfg Config
	if err := json.Unmarshal([]byte(os.Getenv("SLICER_ACTOR")), &cfg); err != nil {
		return fmt.Errorf("SLICER_ACTOR: %w", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if cfg.Role == "store" {
		return serveStore(ctx, cfg)
	}
	log, err := history.Create(filepath.Join(cfg.Logs, fmt.Sprintf("%s-%d.log", cfg.Name, os.Getpid())))
	if err != nil {
		return err
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, nil)))
	switch cfg.Role {
	case "slicelets":
		err = runOwners(ctx, cfg, log)
	case "clients":
		err = runClients(ctx, cfg, log)
	case "callers":
		err = runCallers(ctx, cfg, log)
	default:
		err = fmt.Errorf("no role %q", cfg.Role)
	}
	if closed := log.Close(); err == nil {
		err = closed
	}
	return err
}

func (c Config) registers() (keys []string) {
	for i := range c.Registers {
		keys = append(keys, fmt.Sprintf("r%d", i))
	}
	return keys
}

func (c Config) probes() (keys []string) {
	for i := range c.Probes {
		keys = append(keys, fmt.Sprintf("p%d", i))
	}
	return keys
}
