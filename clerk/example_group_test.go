package clerk_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/test/slicertest"
)

// A page needs what is known of many users: each owner is asked once, for all of its keys, and what
// it refuses, as it has moved, is asked for again at its owner.
func ExampleClerk_Group() {
	env := slicertest.Start() // in a program: clerk.New and slicelet.New
	defer env.Close()
	servers := make(map[string]*slicelet.Slicelet)
	for _, task := range []string{"cache-0", "cache-1", "cache-2"} {
		servers[task] = env.Slicelet(slicelet.Config{Job: "cache", Task: task})
	}
	c := env.Clerk(clerk.Config{Job: "cache", ClientID: "frontend"})
	// The server's side of a call for several keys.
	profiles := func(task assignment.Task, users []string) (found map[string]string, refused []string) {
		found = make(map[string]string)
		for _, user := range users {
			if servers[task.Name].Handle(user).Owned() {
				found[user] = "profile of " + user + ", from " + task.Name
			} else {
				refused = append(refused, user)
			}
		}
		return found, refused
	}
	// While ada moves, the client is a moment behind.
	env.Assign("cache", slicertest.Key("ada", "cache-0"), slicertest.Key("bob", "cache-0"), slicertest.Key("eve", "cache-1"))
	release := env.Hold("frontend")
	env.Assign("cache", slicertest.Key("ada", "cache-2"))

	page, users := make(map[string]string), []string{"ada", "bob", "eve"}
	for times := 0; len(users) > 0; times++ {
		groups := c.Group(users)
		if len(groups.Unowned) > 0 {
			fmt.Println("no owner:", groups.Unowned)
			return
		}
		var calls sync.WaitGroup
		var mu sync.Mutex
		var refusal clerk.Refused
		var left []string
		for _, g := range groups.ByTask {
			c.Requested()
			calls.Go(func() {
				found, refused := profiles(g.Task, g.Keys)
				mu.Lock()
				defer mu.Unlock()
				for user, profile := range found {
					page[user] = profile
				}
				if len(refused) > 0 {
					refusal = clerk.Refused{Job: c.Job(), Task: g.Task.Name, Times: times, Routed: groups.Generation}
					left = append(refused, left...)
				}
			})
		}
		calls.Wait()
		fmt.Println(len(groups.ByTask), "calls, refused", left)
		if users = left; len(users) == 0 {
			break
		}
		release()
		if err := c.AwaitOwner(context.Background(), users[0], refusal); err != nil {
			fmt.Println(err)
			return
		}
	}
	for _, user := range []string{"ada", "bob", "eve"} {
		fmt.Println(page[user])
	}
	// Output:
	// 2 calls, refused [ada]
	// 1 calls, refused []
	// profile of ada, from cache-2
	// profile of bob, from cache-0
	// profile of eve, from cache-1
}
