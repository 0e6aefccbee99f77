package search

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/slicer-project/slicer/loadbalance/overload"
)

const (
	// enough is the pressure from which on a search looks at the newest documents alone,
	// and newest is what part of all these are, one in so many.
	enough = .3
	newest = 20
	// most is how many documents an answer has.
	most = 10
)

// Index is a tenant's documents, the newest first.
type Index []string

// Answer is what a search finds.
type Answer struct {
	Found []string `json:"found"` // the newest first
	// Partial says that only the newest documents were looked at.
	Partial bool `json:"partial,omitempty"`
}

// Find looks for documents that contain a word. How many it looks at depends on how much else
// the server has to do.
func (x Index) Find(ctx context.Context, word string) Answer {
	var a Answer
	if a.Partial = overload.Pressure(ctx) >= enough; a.Partial {
		x = x[:(len(x)+newest-1)/newest]
	}
	word = strings.ToLower(word)
	for _, doc := range x {
		if strings.Contains(strings.ToLower(doc), word) && len(a.Found) < most {
			a.Found = append(a.Found, doc)
		}
	}
	return a
}

// Handler answers GET /tenants/TENANT/search?word=WORD. index returns a tenant's documents.
func Handler(index func(tenant string) Index) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /tenants/{tenant}/search", func(w http.ResponseWriter, r *http.Request) {
		a := index(r.PathValue("tenant")).Find(r.Context(), r.FormValue("word"))
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(a)
	})
	return mux
}

// Tenant is the key of a request: what its path says.
func Tenant(r *http.Request) (string, bool) {
	rest, ok := strings.CutPrefix(r.URL.Path, "/tenants/")
	tenant, _, _ := strings.Cut(rest, "/")
	return tenant, ok && tenant != ""
}
