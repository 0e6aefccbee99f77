package ratelimit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"sort"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/test/examples/ratelimit/quota"
)

// frontendVariable is the environment of a process that is to be a frontend: its work.
const frontendVariable = "SLICER_TEST_RATELIMIT_FRONTEND"

// bin is how finely a frontend counts, in time.
const bin = 500 * time.Millisecond

// load says which limits there are, and how much is asked of them where.
type load struct {
	Frontends int
	// Limits is how many there are. Of the first is asked half of what it allows, at all
	// frontends, and HotTimes that when it is hot; of the next Wide more than they allow at
	// all frontends, and of the next Over at one to three frontends. What remains is asked
	// for now and then, each at one frontend, Cold requests a second altogether.
	Limits, Wide, Over int
	HotTimes, Cold     float64
	// Rate is what a limit allows a second for each frontend at which it is asked for, and
	// Times how many times that is asked for.
	Rate, Times float64
}

// frontends is at how many frontends a limit is asked for.
func (l load) frontends(limit int) int {
	switch {
	case limit <= l.Wide:
		return l.Frontends
	case limit <= l.Wide+l.Over:
		return min(1+limit%3, l.Frontends)
	}
	return 1
}

// at reports whether a limit is asked for at a frontend.
func (l load) at(limit, frontend int) bool {
	return (frontend-limit%l.Frontends+l.Frontends)%l.Frontends < l.frontends(limit)
}

// limit is what is allowed.
func (l load) limit(limit int) quota.Limit {
	rate := l.Rate * float64(l.frontends(limit))
	switch {
	case limit == 0:
		rate *= 2.5
	case !l.over(limit):
		return quota.Limit{Rate: 10, Burst: 10}
	}
	return quota.Limit{Rate: rate, Burst: max(1, rate/10)}
}

// over reports whether more is asked for than is allowed, of the first when it is hot.
func (l load) over(limit int) bool { return limit <= l.Wide+l.Over }

// demand is how much is asked for at each of the frontends, requests a second.
func (l load) demand(limit int, hot bool) float64 {
	switch allowed := l.limit(limit).Rate / float64(l.frontends(limit)); {
	case limit == 0 && hot:
		return l.HotTimes * allowed
	case limit == 0:
		return allowed / 2
	case l.over(limit):
		return l.Times * allowed
	default:
		return l.Cold / float64(l.Limits-1-l.Wide-l.Over)
	}
}

// work is what one frontend is to do.
type work struct {
	load
	Index  int
	Slicer string
	Start  time.Time // of the first bin
	Out    string    // the file for a result
}

// result is what a frontend has counted.
type result struct {
	// Counts are those of limits of which more is asked for, by bins.
	Counts map[int]*counts
	// Cold and ColdDenied are the requests for other limits, and those that were not let in.
	Cold, ColdDenied int
	// Late is the longest time that the process was not run.
	Late              time.Duration
	Decisions, Errors int
}

type counts struct{ Asked, Let []int32 }

func (c *counts) add(at int, let bool) {
	for len(c.Asked) <= at {
		c.Asked, c.Let = append(c.Asked, 0), append(c.Let, 0)
	}
	c.Asked[at]++
	if let {
		c.Let[at]++
	}
}

// runFrontend is a frontend's process. It is asked until it gets SIGTERM, and from SIGUSR1
// on the first limit is hot.
func runFrontend(text string) (err error) {
	var w work
	if err := json.Unmarshal([]byte(text), &w); err != nil {
		return err
	}
	end, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	hot := make(chan os.Signal, 1)
	signal.Notify(hot, syscall.SIGUSR1)
	c, err := clerk.New(clerk.Config{Job: Job, ClientID: fmt.Sprint("frontend-", w.Index), Distributors: []string{w.Slicer}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	limits, err := NewClient(ClientConfig{Clerk: c, Frontends: w.Frontends,
		DialOptions: []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, limits.Close()) }()
	r := result{Counts: map[int]*counts{}}
	w.ask(end, hot, limits, &r)
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return os.WriteFile(w.Out, data, 0o600)
}

// target is a limit that a frontend is asked for.
type target struct {
	number int
	key    string
	limit  quota.Limit
	counts *counts // nil for one of which less is asked for
}

// ask asks for limits, as independent clients do, until the context ends.
func (w *work) ask(end context.Context, hot <-chan os.Signal, limits *Client, r *result) {
	var targets []target
	for i := range w.Limits {
		if !w.at(i, w.Index) {
			continue
		}
		t := target{number: i, key: fmt.Sprint("limit/", i), limit: w.limit(i)}
		if w.over(i) {
			t.counts = &counts{}
			r.Counts[i] = t.counts
		}
		targets = append(targets, t)
	}
	upTo := make([]float64, len(targets)) // sums of demand
	plan := func(hot bool) {
		sum := 0.
		for i, t := range targets {
			sum += w.demand(t.number, hot)
			upTo[i] = sum
		}
	}
	plan(false)
	pause := time.NewTicker(2 * time.Millisecond)
	defer pause.Stop()
	at := time.Now()
	for {
		select {
		case <-end.Done():
			return
		case <-hot:
			plan(true)
		case <-pause.C:
		}
		now := time.Now()
		all := upTo[len(upTo)-1]
		if r.Late = max(r.Late, now.Sub(at)); now.Sub(at) > time.Second {
			at = now.Add(-time.Second) // requests of before have given up
		}
		b := int(now.Sub(w.Start) / bin)
		for {
			next := at.Add(time.Duration(rand.ExpFloat64() / all * float64(time.Second)))
			if next.After(now) {
				break // and again from at, as the process has no memory
			}
			at = next
			t := &targets[sort.SearchFloat64s(upTo, rand.Float64()*all)]
			ok, err := limits.Allow(t.key, t.limit, 1)
			r.Decisions++
			switch {
			case err != nil:
				r.Errors++
			case t.counts != nil && b >= 0:
				t.counts.add(b, ok)
			case t.counts == nil:
				r.Cold++
				if !ok {
					r.ColdDenied++
				}
			}
		}
		at = now
	}
}
