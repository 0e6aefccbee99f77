package slicelet_test

import (
	"context"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/slicer-project/slicer/slicelet"
)

// A cache server: it answers whatever arrives, caches only what is its own, and
// leaves without losing a request.
func Example() {
	s, err := slicelet.New(slicelet.Config{
		Job: "cache", Task: "cache-3", Address: "10.1.2.3:8080",
		Distributors: []string{"slicer-1.example:4720", "slicer-2.example:4720"},
		Backups:      []string{"slicer-backup.example:4730"},
		CacheFile:    "/var/cache/cache-3/slicer",
	})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	http.HandleFunc("/profile", func(w http.ResponseWriter, r *http.Request) {
		user := r.URL.Query().Get("user")
		h, profile := s.Handle(user), load(user) // one request for this key
		if h.AssignedContinuously() {
			remember(user, profile)
		}
		w.Write(profile)
	})
	go http.ListenAndServe(":8080", nil)
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	<-stop
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := s.Drain(ctx); err != nil { // slices first, then the clients
		log.Print(err) // names those that may still come
	}
}

func load(user string) []byte        { return []byte(user) }
func remember(user string, p []byte) {}
