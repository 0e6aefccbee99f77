package clerkhttp

import (
	"encoding/base64"
	"net/http"
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/slicer-project/slicer/assignment/httpkey"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/loadbalance/overload"
)

// SetHeaders has a request say what one by a Transport says: its key, its labels and how long
// its client waits, by its context. It is for HTTP clients of other kinds in
// clerk.Clerk.Do, where the context is that which Do gives: without it a task does not know
// how long an answer is waited for, nor which requests to refuse first.
func SetHeaders(r *http.Request, key string) {
	ctx := r.Context()
	r.Header.Set(httpkey.HeaderKey, httpkey.EncodeKey(key))
	setLabels(r.Header, overload.LabelsOf(ctx))
	setTimeout(ctx, r.Header)
	if before := clerk.AttemptOf(ctx); before > 0 {
		r.Header.Set(httpkey.HeaderAttempt, strconv.Itoa(before))
	}
	if n := clerk.StandsForOf(ctx); n > 0 {
		r.Header.Set(httpkey.HeaderStandsFor, strconv.Itoa(n))
	}
}

// OverloadedOf tells an answer by which a task says that it has no room for the request
// (package slicelethttp): what to return from the function that clerk.Clerk.Do calls.
func OverloadedOf(resp *http.Response) (clerk.Overloaded, bool) { return overloaded("", resp) }

// overloaded tells an answer by which a task says that it has no room for the request.
func overloaded(job string, resp *http.Response) (o clerk.Overloaded, ok bool) {
	if resp == nil {
		return clerk.Overloaded{}, false
	}
	if resp.StatusCode == http.StatusOK {
		for _, code := range []codes.Code{codes.Unavailable, codes.ResourceExhausted} {
			if o, ok = clerk.OverloadedFromStatus(grpcFailure(resp, code)); ok {
				return o, o.Job == "" || o.Job == job
			}
		}
		return clerk.Overloaded{}, false
	}
	says := resp.Header.Get(httpkey.HeaderOverloaded)
	if resp.StatusCode != http.StatusServiceUnavailable || says == "" {
		return clerk.Overloaded{}, false
	}
	return clerk.Overloaded{Job: job, Elsewhere: says == httpkey.OverloadedTask, Level: overload.ParseLevel(resp.Header.Get(httpkey.HeaderLevel))}, true
}

// outOfQuota reports whether an answer refuses a request because its customer has used up its
// limit.
func outOfQuota(resp *http.Response) bool {
	return resp.StatusCode == http.StatusTooManyRequests && resp.Header.Get(httpkey.HeaderOverloaded) == httpkey.OverloadedQuota
}

// errRefused is what clerk.Throttle.Refused takes of an answer that is not gRPC's.
var errRefused = status.Error(codes.ResourceExhausted, "")

// refused reports whether the task has refused a request and has not said which others it
// would (clerk.Throttle.Refused): by a limit of the customer's, or with 429, 503 or, of gRPC,
// RESOURCE_EXHAUSTED and nothing that a slicelet says.
func (b *backend) refused(resp *http.Response) bool {
	if resp == nil {
		return false
	}
	switch resp.StatusCode {
	case http.StatusOK:
		err := grpcFailure(resp, codes.ResourceExhausted)
		return err != nil && b.throttle.Refused(err)
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return outOfQuota(resp) || resp.Header[httpkey.HeaderOverloaded] == nil && b.throttle.Refused(errRefused)
	}
	return false
}

// noMore makes an answer say that there should be no retry: only the layer just above the
// task that has no room is to send a request again.
func noMore(resp *http.Response, o clerk.Overloaded) {
	if !o.Elsewhere {
		return
	}
	if resp.StatusCode != http.StatusOK {
		resp.Header.Set(httpkey.HeaderOverloaded, httpkey.OverloadedAll)
		return
	}
	o.Elsewhere = false
	resp.Header[grpcStatus] = []string{strconv.Itoa(int(codes.ResourceExhausted))}
	resp.Header[grpcPushback] = []string{"-1"}
	setDetails(resp, o)
}

// setDetails puts what there is to say into the details of a gRPC status.
func setDetails(resp *http.Response, o clerk.Overloaded) {
	if raw, err := proto.Marshal(o.GRPCStatus().Proto()); err == nil {
		resp.Header[grpcDetails] = []string{base64.RawStdEncoding.EncodeToString(raw)}
	}
}
