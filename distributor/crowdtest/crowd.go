// Package crowdtest is a crowd of subscribers in a process of their own, for
// measurements: a process may have 20,000 descriptors open, and the subscribers' work
// is not to count as the server's. A test binary becomes the crowd when its TestMain
// calls Main.
package crowdtest

import (
	"bufio"
	"context"
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/slicer-project/slicer/assignment/cputest"
)

// env makes the test binary a crowd of subscribers.
const env = "SLICER_TEST_CROWD"

// Kinds of crowds.
const (
	// Slicer are raw streams to a Distributor, each on a connection of its own, that
	// look at the trailer's checksum, base and size, acknowledge, decode nothing else,
	// and come back when they have lost the Distributor.
	Slicer = "slicer"
	// AtOnce are the same, save that they come back every quarter of a second, all at
	// the same time and whatever they are told.
	AtOnce = "at-once"
	// Compressed are as Slicer, and read compressed wholes, as package subscriber does.
	Compressed = "compressed"
	// Etcd are watches of one key, each on a connection of its own, from a revision
	// on that stands behind the address and an @. What they have seen is told by its
	// revision.
	Etcd = "etcd"
)

// Key is what a crowd of kind Etcd watches.
const Key = "assignment"

// Job is what a crowd of kind Slicer subscribes to.
const Job = "web"

// Store is the id of the store that the assignments are of.
const Store = 0xabc

// Main runs the crowd if this process is to be one, and reports whether it was.
func Main() (was bool) {
	arg := os.Getenv(env)
	if arg != "" {
		crowdMain(arg)
	}
	return arg != ""
}

// crowd is what runs in that process.
type crowd struct {
	n       int
	kind    string
	address string
	// connecting holds a token for each attempt to connect that is under way. More of
	// them wait: in one process they would time out for want of its own CPU time.
	connecting chan struct{}

	mu    sync.Mutex
	moved *sync.Cond
	seen  map[uint64][]int64 // by checksum: when each subscriber has seen it, Unix nanoseconds
	count map[uint64]int
	ends  Counts
}

// crowdMain is the crowd: it reads questions from stdin and answers them, until stdin
// ends, even in the midst of an answer.
func crowdMain(arg string) {
	c := &crowd{seen: make(map[uint64][]int64), count: make(map[uint64]int), connecting: make(chan struct{}, 512)}
	c.moved = sync.NewCond(&c.mu)
	fmt.Sscan(arg, &c.kind, &c.n, &c.address)
	if c.kind != Etcd {
		// Subscribers in processes of their own would each have little to collect.
		debug.SetGCPercent(400)
		// The Distributor is on the same machine: with a thread for each core in both
		// processes much of the time goes into scheduling.
		runtime.GOMAXPROCS(max(1, runtime.NumCPU()/2))
	}
	ctx := context.Background()
	go func() {
		// Two hundred at a time, or the handshakes time out on a busy machine.
		joining := make(chan struct{}, 200)
		for i := range c.n {
			joining <- struct{}{}
			joined := sync.OnceFunc(func() { <-joining })
			if c.kind == Etcd {
				go c.watchKey(ctx, i, joined)
			} else {
				go c.subscribe(ctx, i, joined)
			}
		}
	}()
	questions := make(chan string)
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			questions <- lines.Text()
		}
		os.Exit(0)
	}()
	for question := range questions {
		var what string
		var sum, or, before uint64
		var since int64
		fmt.Sscan(question, &what, &sum, &or, &before, &since)
		switch what {
		case Slicer, AtOnce:
			c.mu.Lock()
			c.kind = what
			c.mu.Unlock()
			fmt.Println(what)
		case "until":
			c.until(sum)
			fmt.Println(sum)
		case "spread":
			all := c.spread(sum, or, before, since)
			if len(all) == 0 {
				fmt.Println(0, 0, 0, 0)
				continue
			}
			at := func(share float64) int64 { return all[int(share*float64(len(all)-1))] }
			fmt.Println(len(all), at(.5), at(.99), at(1))
		case "counts":
			c.mu.Lock()
			fmt.Println(c.ends.Lost, c.ends.SentAway, c.ends.TimedOut)
			c.mu.Unlock()
		case "cpu":
			fmt.Println(cputest.Own().Nanoseconds())
		}
	}
}

func (c *crowd) until(sum uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.count[sum] < c.n {
		c.moved.Wait()
	}
	// Only the last two matter from here on.
	for s := range c.seen {
		if len(c.seen) > 4 && s != sum && c.count[s] == c.n {
			delete(c.seen, s)
			delete(c.count, s)
		}
	}
}

// spread is how long after since the subscribers that had seen before by then saw sum, or
// the other, whichever was first.
func (c *crowd) spread(sum, or, before uint64, since int64) (all []int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	when := func(sum uint64, i int) int64 {
		if at := c.seen[sum]; at != nil && at[i] != 0 {
			return at[i]
		}
		return math.MaxInt64
	}
	for i := range c.n {
		at := min(when(sum, i), when(or, i))
		if at != math.MaxInt64 && when(before, i) < since {
			all = append(all, at-since)
		}
	}
	slices.Sort(all)
	return all
}

func (c *crowd) saw(i int, sum uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen[sum] == nil {
		c.seen[sum] = make([]int64, c.n)
	}
	if c.seen[sum][i] == 0 {
		c.seen[sum][i] = time.Now().UnixNano()
		if c.count[sum]++; c.count[sum] == c.n {
			c.moved.Broadcast()
		}
	}
}
