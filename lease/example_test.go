package lease_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/lease/leasetest"
	"github.com/slicer-project/slicer/lease/serve"
)

// A slicelet and an assigner of one job, on a store in their own process.
func Example() {
	ctx := context.Background()
	store, err := serve.Open(ctx, serve.Config{Storage: &storage{}})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()

	// The slicelet's process.
	reader, err := lease.NewReader(lease.Config{Readers: store, TTL: 5 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer reader.Close()
	changed := make(chan *lease.Belief, 1)
	job, err := reader.Join(lease.JobConfig{
		Job: "cache", Task: leasetest.TaskName(0), Incarnation: leasetest.Incarnation(0),
		Fetch: func(_ context.Context, g assignment.Generation) (*assignment.Assignment, error) {
			return leasetest.Assignment("cache", g, 1) // here: from the subscriber, or a Distributor by number
		},
		Changed: func(b *lease.Belief) { changed <- b },
	})
	if err != nil {
		log.Fatal(err)
	}

	// The assigner's.
	session, err := store.OpenWriter(ctx, 5*time.Second)
	if err != nil {
		log.Fatal(err)
	}
	token, err := session.Lead(ctx, "cache")
	if err != nil {
		log.Fatal(err)
	}
	// Generation 1 is stored by now.
	if _, err := lease.Advance(ctx, session, lease.Change{Job: "cache", Token: token, Wanted: 1, Wait: time.Second}); err != nil {
		log.Fatal(err)
	}

	fmt.Println("believes in", len((<-changed).Slices()), "slice")
	fmt.Println("owns a key:", job.Owns(assignment.KeyOf("user/4711")))
	go func() { <-changed }() // of the close
	// Output:
	// believes in 1 slice
	// owns a key: true
}

// What a fencing token is for: the pause between a check and what it was for.
//
// A owns key k since generation 5 and writes it through to a store that remembers,
// with each key, the highest token that has written it. A checks, and is stopped:
//
//	A: Owns(k) is true; token 5 in hand            (stopped for a minute)
//	store: A's lease runs out; the guard goes to 6, in which B owns k
//	B: Owns(k) is true; writes k with token 6      accepted, 6 is remembered
//	A: goes on, writes k with token 5              refused: 5 is below 6
//
// Between two checks of A's the lease can end; between two writes to the store
// the token cannot go back.
func Example_fencing() {
	type cell struct {
		token assignment.Generation
		value string
	}
	cells := map[string]*cell{"k": {}}
	write := func(key, value string, token assignment.Generation) bool {
		c := cells[key]
		if token < c.token {
			return false
		}
		c.token, c.value = token, value
		return true
	}
	fmt.Println("B writes:", write("k", "from B", 6))
	fmt.Println("A writes:", write("k", "from A", 5))
	fmt.Println("k is", cells["k"].value)
	// Output:
	// B writes: true
	// A writes: false
	// k is from B
}
