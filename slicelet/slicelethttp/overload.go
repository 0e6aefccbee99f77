package slicelethttp

import (
	"fmt"
	"hash/maphash"
	"net/http"
	"strconv"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/httpkey"
	"github.com/slicer-project/slicer/loadbalance/overload"
	"github.com/slicer-project/slicer/slicelet"
)

// attempt counts a request by how often it was sent before.
func (g *gate) attempt(r *http.Request, now time.Time, from uint64) {
	before := 0
	if s := last(r, httpkey.HeaderAttempt); s != "" { // an error of strconv's would allocate
		before, _ = strconv.Atoi(s)
	}
	g.slicelet.CountAttempt(now, from, before)
}

var seed = maphash.MakeSeed()

// peerOf tells connections apart.
func peerOf(r *http.Request) uint64 { return maphash.String(seed, r.RemoteAddr) }

// Overloaded answers a request that the handler has no room for, before it has done
// anything, with 503 Service Unavailable, and reports whether the client may send it to
// another task: clerkhttp does, within its budget for retries. The request counts as shed
// (slicelet.Handle.Shed). It is for handlers of Handler; another's request is answered
// without a word on retries.
func Overloaded(w http.ResponseWriter, r *http.Request) {
	if v, _ := r.Context().Value(handleOfContext{}).(*visit); v != nil {
		v.full(w)
		return
	}
	http.Error(w, noRoom, http.StatusServiceUnavailable)
}

const noRoom = "no room for the request"

// full answers that there is no room.
func (v *visit) full(w http.ResponseWriter) {
	v.refused.Store(true)
	says := httpkey.OverloadedAll
	if v.gate.slicelet.Shed(v.handle, v.labels) {
		says = httpkey.OverloadedTask
	}
	w.Header().Set(httpkey.HeaderOverloaded, says)
	http.Error(w, noRoom, http.StatusServiceUnavailable)
}

// refuses answers a request that there is no room for, and reports whether it is one.
func (v *visit) refuses(verdict overload.Verdict) bool {
	if v.beyond {
		v.recorder.Header().Set(httpkey.HeaderOverloaded, httpkey.OverloadedQuota)
		http.Error(&v.recorder, fmt.Sprintf("slicer: customer %q has used up its limit", v.labels.Customer), http.StatusTooManyRequests)
		return true
	}
	switch verdict {
	case overload.Late:
		http.Error(&v.recorder, "slicer: the request could not be answered in time, so it was not begun", http.StatusGatewayTimeout)
	case overload.Shed:
		v.full(&v.recorder)
	default:
		return false
	}
	return true
}

// admit decides whether there is room for a request. Its goroutine has begun already, so
// that of what it has waited only the last part is known.
func (g *gate) admit(v *visit, r *http.Request, key string, keyed bool, now time.Time, from uint64) overload.Verdict {
	if l := g.slicelet.Admission().Level(); l.Below > 0 {
		v.Header().Set(httpkey.HeaderLevel, l.String())
	}
	if g.slicelet.Draining() {
		v.Header().Set(httpkey.HeaderDraining, "1")
	}
	standsFor := overload.ParseStandsFor(last(r, httpkey.HeaderStandsFor))
	a := slicelet.Arrival{Labels: v.labels, StandsFor: standsFor, Peer: from, Keyed: keyed && (standsFor > 1 || g.slicelet.Admission().HeavyKeys())}
	if a.Keyed {
		a.Key = assignment.KeyOf(key)
	}
	if v.beyond = !g.slicelet.Admission().Charge(now, &v.charge, &a); v.beyond {
		return overload.Shed
	}
	v.labels = a.Labels
	verdict := g.slicelet.Admission().Admit(v, now, a)
	if verdict != overload.Served {
		v.charge.Cancel()
	}
	return verdict
}
