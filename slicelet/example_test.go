package slicelet_test

import (
	"context"
	"log"
	"log/slog"
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
		Distributors: []string{"slicer-1.example:4720", "slicer-2.example:4720"}, Logger: slog.Default(),
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
	sigterm, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	leave(sigterm, s)
}

// leave waits for the signal, then gives the slices away and sees the last
// clients off, for half a minute at most.
func leave(sigterm context.Context, s *slicelet.Slicelet) {
	<-sigterm.Done()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := s.Drain(ctx); err != nil {
		log.Print(err) // names those that may still come
	}
}

func load(user string) []byte        { return []byte(user) }
func remember(user string, p []byte) {}
