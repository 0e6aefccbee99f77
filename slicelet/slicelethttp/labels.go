package slicelethttp

import (
	"net/http"

	"github.com/slicer-project/slicer/assignment/httpkey"
	"github.com/slicer-project/slicer/loadbalance/overload"
)

// labels are those of a request.
func (g *gate) labels(r *http.Request) overload.Labels {
	l := g.slicelet.Labels(last(r, httpkey.HeaderCriticality), last(r, httpkey.HeaderCohort))
	l.Customer = g.slicelet.CustomerOf(r.Context(), last(r, httpkey.HeaderCustomer))
	return l
}

// last is the last value of a header, empty if there is none: what is nearest to the
// server has the last word.
func last(r *http.Request, name string) string {
	v := r.Header[name]
	if len(v) == 0 {
		return ""
	}
	return v[len(v)-1]
}
