package clerk_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"net/http"

	"github.com/slicer-project/slicer/clerk"
)

// A client of an HTTP service: each request goes to an owner of its key, and to
// another task if that one does not answer.
func Example() {
	c, err := clerk.New(clerk.Config{
		Job: "cache", CacheFile: "/var/cache/frontend/slicer",
		Distributors: []string{"slicer-1.example:4720", "slicer-2.example:4720"},
		Backups:      []string{"slicer-backup.example:4730"}, Logger: slog.Default(),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	if err := c.Ready(context.Background()); err != nil {
		log.Fatal(err)
	}
	key := "user/4711"
	for task := range c.Lookup(key).All() { // the owners; if none answers, in affinity mode any task will do
		if resp, err := http.Get("http://" + task.Address + "/profile?user=" + key); err == nil {
			defer resp.Body.Close()
			fmt.Println(resp.Status)
			return
		}
	}
}
