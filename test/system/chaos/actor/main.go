// Command actor is the application of a chaos run: processes with servers, each
// with a slicelet and an address of its own, and processes with clients, each
// with a clerk of its own. They write down what happens.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/slicer-project/slicer/test/system/chaos/record"
)

// Config comes in the environment, as JSON, in SLICER_CHAOS.
type Config struct {
	Role string // servers or clients
	Job  string
	Log  string // file
	// Names are of the servers or clients, and Addresses are the servers'.
	Names, Addresses      []string
	Distributors, Backups []string
	// PerSecond is how many calls a client begins, each with a deadline after Timeout,
	// for one of so many Keys. Every other client speaks gRPC.
	PerSecond, Keys int
	Timeout         time.Duration
	Seed            uint64
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "actor:", err)
		os.Exit(1)
	}
}

func run() error {
	var cfg Config
	if err := json.Unmarshal([]byte(os.Getenv("SLICER_CHAOS")), &cfg); err != nil {
		return fmt.Errorf("SLICER_CHAOS: %w", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	log, err := record.Append(cfg.Log)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	wg.Go(func() { log.Watch(ctx) })
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, nil)))
	switch cfg.Role {
	case "servers":
		err = runServers(ctx, cfg, log)
	case "clients":
		err = runClients(ctx, cfg, log)
	default:
		err = fmt.Errorf("no role %q", cfg.Role)
	}
	stop()
	wg.Wait()
	if closed := log.Close(); err == nil {
		err = closed
	}
	return err
}
