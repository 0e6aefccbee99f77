package clerkhttp

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/slicer-project/slicer/assignment"
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

// labelsIn is what setLabels has set, but for the customer.
func labelsIn(h http.Header) (l overload.Labels) {
	if v := h[httpkey.HeaderCriticality]; len(v) > 0 {
		l.Criticality, _ = assignment.ParseCriticality(v[0])
	}
	if v := h[httpkey.HeaderCohort]; len(v) > 0 {
		if cohort, err := strconv.Atoi(v[0]); err == nil {
			l.SetCohort(cohort)
		}
	}
	return l
}

// priority is that of the request. Its cohort is drawn here if that matters now.
func (r *trip) priority() overload.Priority {
	ck, l := r.t.clerk, overload.Labels{}
	if ck.Throttling() || ck.LimitsOutstanding() {
		l = ck.DrawCohort(labelsIn(r.out.Header))
		setLabels(r.out.Header, l)
	}
	return ck.Priority(l)
}

// customerIn is whom a request is charged to.
func customerIn(h http.Header) string {
	if v := h[httpkey.HeaderCustomer]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// hear takes what an answer says of the task.
func (b *backend) hear(resp *http.Response) {
	if !isGRPC(resp.Header) {
		b.throttle.HearDraining(len(resp.Header[httpkey.HeaderDraining]) > 0)
	}
	if v := resp.Header[httpkey.HeaderLevel]; len(v) > 0 {
		b.throttle.Hear(overload.ParseLevel(v[0]))
	} else if !isGRPC(resp.Header) { // which says it in trailers
		b.throttle.Hear(overload.Level{})
	}
}

// setTimeout has a request say how long its context lasts.
func setTimeout(ctx context.Context, h http.Header) {
	if left, ok := timeoutOf(ctx); ok {
		h[httpkey.HeaderTimeout] = []string{left}
	}
}

// timeoutOf is how long a context lasts, as a header says it. It is not ok if it has no deadline.
func timeoutOf(ctx context.Context) (ms string, ok bool) {
	by, ok := ctx.Deadline()
	if !ok {
		return "", false
	}
	left := min(max(time.Until(by), time.Millisecond), httpkey.MaxTimeout)
	return strconv.FormatInt(left.Milliseconds(), 10), true
}
