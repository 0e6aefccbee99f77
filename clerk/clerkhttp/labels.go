package clerkhttp

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/slicer-project/slicer/assignment/httpkey"
	"github.com/slicer-project/slicer/loadbalance/overload"
)

// setLabels has a request say them.
func setLabels(h http.Header, l overload.Labels) {
	if l.Criticality != 0 {
		h[httpkey.HeaderCriticality] = []string{l.Criticality.String()}
	}
	if cohort, ok := l.Cohort(); ok {
		h[httpkey.HeaderCohort] = []string{strconv.Itoa(cohort)}
	}
	if l.Customer != "" {
		h[httpkey.HeaderCustomer] = []string{l.Customer}
	}
}

// setTimeout has a request say how long its context lasts.
func setTimeout(ctx context.Context, h http.Header) {
	if by, ok := ctx.Deadline(); ok {
		left := min(max(time.Until(by), time.Millisecond), httpkey.MaxTimeout)
		h[httpkey.HeaderTimeout] = []string{strconv.FormatInt(left.Milliseconds(), 10)}
	}
}
