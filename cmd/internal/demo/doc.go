// Package demo is "slicer demo": the whole of Slicer in one process over real
// loopback gRPC, sharding a toy cache service while its hot keys shift, a server
// is killed, another is drained and one is added.
//
// The control plane is that of "slicer serve", on Pebble in a temporary
// directory. Servers are gRPC servers with a slicelet each; clients hold gRPC
// connections and a clerk each, and call at a fixed rate whether or not earlier
// calls are answered (open loop). A client is as a user's would be: it calls a
// task that owns the key, and when that does not answer, one other task, once.
//
// In consistent mode servers hold leases on the same control plane and refuse keys that
// are not theirs, and a client goes on asking the newest owner until its call is over.
// All the while the demo looks for a key that two servers believe in.
//
// The scene of overload has neither shift nor death, but ten times as many calls for five
// seconds: servers work on so many calls at a time, and clients' calls have criticalities.
//
// All that is reported is measured in the clients, save lines that name another
// source.
package demo

import (
	"time"

	"github.com/slicer-project/slicer/cmd/internal/run"
)

// Config is what the command's flags say.
type Config struct {
	// Duration of the run, at least MinDuration. With a trace and a speed: at most.
	Duration time.Duration
	// Tasks at the start, Clients, and calls a second by all clients together.
	Tasks, Clients, QPS int
	Seed                uint64
	// Trace is a file to replay instead of the Zipf load, Speed how much faster
	// than it was recorded; 0 fits it into Duration.
	Trace string
	Speed float64
	// Warn, unless nil, is told once what of the trace is left out.
	Warn func(string)
	// Consistent runs the job in consistent mode.
	Consistent bool
	// Overload shows ten times as many calls for some seconds, and nothing else.
	Overload bool
	// JSON prints machine output alone.
	JSON bool
	// Listen is where the Distributor serves, and HTTP where the status page is; empty for none.
	Listen, HTTP string

	// durationSet says that the user chose Duration.
	durationSet bool
}

// Bounds of what can be shown.
const (
	MinDuration = 10 * time.Second
	// MinConsistent is MinDuration in consistent mode, where what a dead server
	// costs must have passed before the next thing happens.
	MinConsistent = 30 * time.Second
	maxDuration   = 24 * time.Hour
	// MinOverload is MinDuration of the scene of overload.
	MinOverload = 20 * time.Second
	minTasks    = 3 // one is killed, one is drained
	maxTasks    = 200
	maxClients  = 200
	minQPS      = 100
	maxQPS      = 200_000
)

// Validate names the first flag whose value is not allowed.
func (c *Config) Validate() error {
	switch {
	case c.Duration < MinDuration || c.Duration > maxDuration:
		return run.Usagef("--duration: %s is not allowed: want %s to %s", c.Duration, MinDuration, maxDuration)
	case c.Consistent && c.Duration < MinConsistent:
		return run.Usagef("--duration: %s is not allowed with --consistent: want %s to %s", c.Duration, MinConsistent, maxDuration)
	case c.Overload && c.Duration < MinOverload:
		return run.Usagef("--duration: %s is not allowed with --overload: want %s to %s", c.Duration, MinOverload, maxDuration)
	case c.Overload && (c.Consistent || c.Trace != ""):
		return run.Usagef("--overload: not with --consistent or --trace")
	case c.Tasks < minTasks || c.Tasks > maxTasks:
		return run.Usagef("--tasks: %d is not allowed: want %d to %d", c.Tasks, minTasks, maxTasks)
	case c.Clients < 1 || c.Clients > maxClients:
		return run.Usagef("--clients: %d is not allowed: want 1 to %d", c.Clients, maxClients)
	case c.QPS < minQPS || c.QPS > maxQPS:
		return run.Usagef("--qps: %d is not allowed: want %d to %d calls a second", c.QPS, minQPS, maxQPS)
	case !(c.Speed >= 0 && c.Speed <= 1e9):
		return run.Usagef("--speed: %g is not allowed: want 0 to 1e9, 0 fits the trace into --duration", c.Speed)
	case c.Speed != 0 && c.Trace == "":
		return run.Usagef("--speed: only with --trace")
	}
	if c.HTTP != "" {
		if err := run.CheckAddress("--http", c.HTTP); err != nil {
			return err
		}
	}
	return run.CheckAddress("--listen", c.Listen)
}
