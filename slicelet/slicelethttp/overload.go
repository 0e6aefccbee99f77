package slicelethttp

import (
	"net/http"
	"strconv"
	"time"

	"github.com/slicer-project/slicer/assignment/httpkey"
)

// attempt counts a request by how often it was sent before.
func (g *gate) attempt(r *http.Request, now time.Time) {
	before, _ := strconv.Atoi(last(r, httpkey.HeaderAttempt))
	g.slicelet.CountAttempt(now, before)
}

// Overloaded answers a request that the handler has no room for, before it has done
// anything, with 503 Service Unavailable, and reports whether the client may send it to
// another task: clerkhttp does, within its budget for retries. The request counts as shed
// (slicelet.Handle.Shed). It is for handlers of Handler; another's request is answered
// without a word on retries.
func Overloaded(w http.ResponseWriter, r *http.Request) {
	if v, _ := r.Context().Value(handleOfContext{}).(*visit); v != nil {
		elsewhere := false
		if v.keyed {
			v.handle.Shed()
			elsewhere = v.handle.Elsewhere()
		} else {
			elsewhere = v.gate.slicelet.Elsewhere()
		}
		says := httpkey.OverloadedAll
		if elsewhere {
			says = httpkey.OverloadedTask
		}
		w.Header().Set(httpkey.HeaderOverloaded, says)
	}
	http.Error(w, "no room for the request", http.StatusServiceUnavailable)
}
