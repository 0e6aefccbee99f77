package clerk_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/slicer-project/slicer/clerk"
)

// A client of an HTTP service: each request goes to an owner of its key, and to
// another task if that one does not answer.
func Example() {
	c, err := clerk.New(clerk.Config{
		Job:          "cache",
		Distributors: []string{"slicer-1.example:7000", "slicer-2.example:7000"},
		Backups:      []string{"slicer-backup.example:7001"},
		CacheFile:    "/var/cache/frontend/slicer",
	})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := c.Ready(ctx); err != nil {
		log.Fatal(err)
	}
	key := "user/4711"
	for task := range c.Lookup(key).All() {
		if resp, err := http.Get("http://" + task.Address + "/profile?user=" + key); err == nil {
			fmt.Println(resp.Status)
			resp.Body.Close()
			return
		}
	}
	for _, task := range c.Assignment().Tasks() { // affinity mode: anybody will do
		if resp, err := http.Get("http://" + task.Address + "/profile?user=" + key); err == nil {
			fmt.Println(resp.Status)
			resp.Body.Close()
			return
		}
	}
}
