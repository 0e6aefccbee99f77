// Command server counts users' visits in memory: GET /users/NAME. It knows nothing of Slicer.
package main

import (
	"fmt"
	"log"
	"net/http"
	"os"
	"sync"
)

func main() {
	port := os.Args[1]
	var mu sync.Mutex
	visits := map[string]int{}
	http.HandleFunc("GET /users/{name}", func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("name")
		mu.Lock()
		visits[name]++
		n := visits[name]
		mu.Unlock()
		fmt.Fprintf(w, "visit %d of %s, at %s\n", n, name, port)
	})
	log.Fatal(http.ListenAndServe("127.0.0.1:"+port, nil))
}
