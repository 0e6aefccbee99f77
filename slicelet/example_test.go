package slicelet_test

import (
	"context"
	"log"
	"net/http"
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
		Distributors: []string{"slicer-1.example:7000", "slicer-2.example:7000"},
		Backups:      []string{"slicer-backup.example:7001"},
		CacheFile:    "/var/cache/cache-3/slicer",
	})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	srv := &http.Server{Addr: ":8080", Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user := r.URL.Query().Get("user")
		h := s.Handle(user) // one request for this key
		profile := load(user)
		if h.AssignedContinuously() {
			remember(user, profile)
		}
		w.Write(profile)
	})}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, func() {
		drain, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := s.Drain(drain); err != nil {
			log.Print(err) // names the clients that may still come
		}
		srv.Shutdown(drain)
	})
	log.Print(srv.ListenAndServe())
}

func load(user string) []byte        { return []byte(user) }
func remember(user string, p []byte) {}
