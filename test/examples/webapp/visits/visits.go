// Package visits is an ordinary HTTP service: it counts users' visits in memory.
package visits

import (
	"fmt"
	"net/http"
	"sync"
)

// Handler answers GET /users/{user}/visits. It tells its server's name.
func Handler(server string) http.Handler {
	var mu sync.Mutex
	visits := map[string]int{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /users/{user}/visits", func(w http.ResponseWriter, r *http.Request) {
		user := r.PathValue("user")
		mu.Lock()
		visits[user]++
		n := visits[user]
		mu.Unlock()
		fmt.Fprintf(w, "visit %d of %s, at %s\n", n, user, server)
	})
	return mux
}
