package clerkhttp

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/slicer-project/slicer/assignment/httpkey"
	"github.com/slicer-project/slicer/clerk"
)

// full answers that there is no room.
func full(says string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(httpkey.HeaderOverloaded, says)
		http.Error(w, "no room", http.StatusServiceUnavailable)
	}
}

// TestOverloaded: a request that a task has no room for goes to another owner, body and
// all, and the answer in the end says that there should be no retry.
func TestOverloaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newTestJob(t, affinity, "abcd")
		tr := j.transport(nil)
		j.replicate(2, 3) // a, b and c own all
		post := func() *http.Response {
			t.Helper()
			req, err := http.NewRequestWithContext(clerk.WithKey(t.Context(), "k"), "POST", "http://profiles", strings.NewReader("small"))
			if err != nil {
				t.Fatal(err)
			}
			resp, err := tr.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			return resp
		}
		served := func() (n int) {
			for _, name := range []string{"a", "b", "c", "d"} {
				n += j.task(name).served()
			}
			return n
		}
		all := func(h http.HandlerFunc) {
			for _, name := range []string{"a", "b", "c", "d"} {
				j.task(name).answers(h)
			}
		}
		all(full(httpkey.OverloadedTask))
		resp := post()
		if n := served(); resp.StatusCode != 503 || resp.Header.Get(httpkey.HeaderOverloaded) != httpkey.OverloadedAll || n != clerk.MaxAttempts {
			t.Errorf("%d, %v after %d attempts", resp.StatusCode, resp.Header, n)
		}
		if n := j.task("d").served(); n != 0 {
			t.Errorf("one that does not own the key was asked %d times", n)
		}
		attempts := map[string]bool{}
		for _, name := range []string{"a", "b", "c"} {
			attempts[j.task(name).requests[0].Header.Get(httpkey.HeaderAttempt)] = true
		}
		if !attempts[""] || !attempts["1"] || !attempts["2"] {
			t.Errorf("attempts %v", attempts)
		}
		time.Sleep(20 * time.Second)
		j.task("b").answers(nil)
		if resp := post(); resp.StatusCode != 200 {
			t.Errorf("%d, while one has room", resp.StatusCode)
		}
		time.Sleep(20 * time.Second)
		all(full(httpkey.OverloadedAll))
		before := served()
		if resp := post(); resp.StatusCode != 503 || served()-before != 1 {
			t.Errorf("%d after %d attempts of what should not be sent again", resp.StatusCode, served()-before)
		}
		// In the budget.
		all(full(httpkey.OverloadedTask))
		before = served()
		for range 1000 {
			time.Sleep(10 * time.Millisecond)
			post()
		}
		if n := served() - before; n < 1050 || n > 1110 {
			t.Errorf("%d attempts of 1,000 requests", n)
		}
		j.stop(tr)
	})
}

// TestOverloadedGRPC: the same of an answer that is gRPC's.
func TestOverloadedGRPC(t *testing.T) {
	answer := func(o clerk.Overloaded) *http.Response {
		w := httptest.NewRecorder()
		w.Header().Set("Content-Type", grpcType)
		resp := w.Result()
		resp.Header[grpcStatus] = []string{"14"}
		setDetails(resp, o)
		return resp
	}
	resp := answer(clerk.Overloaded{Job: "job", Task: "a", Elsewhere: true})
	o, ok := overloaded("job", resp)
	if !ok || !o.Elsewhere || o.Task != "a" {
		t.Fatalf("%+v, %t", o, ok)
	}
	if _, ok := overloaded("another", resp); ok {
		t.Error("taken for another job's")
	}
	noMore(resp, o)
	if o, ok := overloaded("job", resp); !ok || o.Elsewhere || resp.Header.Get(grpcStatus) != "8" || resp.Header.Get(grpcPushback) != "-1" {
		t.Errorf("then %+v, %t, %v, want %s", o, ok, resp.Header, codes.ResourceExhausted)
	}
	for _, resp := range []*http.Response{nil, {StatusCode: 200, Header: http.Header{}}, {StatusCode: 503, Header: http.Header{}}, {StatusCode: 500, Header: http.Header{httpkey.HeaderOverloaded: {"task"}}}} {
		if o, ok := overloaded("job", resp); ok {
			t.Errorf("%v is %+v", resp, o)
		}
	}
}
