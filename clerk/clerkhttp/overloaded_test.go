package clerkhttp

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/slicer-project/slicer/assignment/httpkey"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/loadbalance/overload"
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
		if n := served(); resp.StatusCode != 503 || resp.Header.Get(httpkey.HeaderOverloaded) != httpkey.OverloadedAll || n != 3 {
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

// TestThrottled: requests that a task has said that it refuses are not sent to it, but for
// trial requests.
func TestThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newTestJob(t, affinity, "ab")
		tr := j.transport(nil)
		j.replicate(2, 1) // a owns all
		level := "320;1000"
		answer := func(w http.ResponseWriter, _ *http.Request) {
			if level != "" {
				w.Header().Set(httpkey.HeaderLevel, level)
			}
		}
		j.task("a").answers(answer)
		j.task("b").answers(answer)
		ask := func(c overload.Criticality, keyed bool) error {
			ctx := overload.WithCriticality(t.Context(), c)
			if keyed {
				ctx = clerk.WithKey(ctx, "k")
			}
			req, err := http.NewRequestWithContext(ctx, "GET", "http://profiles", nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := tr.RoundTrip(req)
			if err == nil {
				resp.Body.Close()
			}
			return err
		}
		a := j.task("a")
		if err := ask(overload.Critical, true); err != nil {
			t.Fatal(err)
		}
		held, before := 0, a.served()
		for range 1000 {
			if err := ask(overload.Critical, true); err != nil {
				if _, ok := errors.AsType[clerk.Overloaded](err); !ok {
					t.Fatal(err)
				}
				held++
			}
		}
		if n := a.served() - before; held < 400 || held > 600 || n != 1000-held { // six standard deviations from half
			t.Errorf("%d were held back, %d sent", held, n)
		}
		newest := func() http.Header { return a.requests[len(a.requests)-1].Header }
		if newest().Get(httpkey.HeaderCohort) == "" || newest().Get(httpkey.HeaderStandsFor) != "" {
			t.Errorf("headers: %v", newest())
		}
		for range 10 {
			if ask(overload.Sheddable, true) == nil {
				t.Error("it was sent")
			}
		}
		time.Sleep(1600 * time.Millisecond)
		if err := ask(overload.Sheddable, true); err != nil || newest().Get(httpkey.HeaderStandsFor) != "11" {
			t.Errorf("the trial request: %v, %v", err, newest())
		}
		before = a.served()
		for range 30 {
			if err := ask(overload.Sheddable, false); err != nil && j.task("b").served() == 0 {
				t.Error(err)
			}
		}
		if n := a.served() - before; n != 0 {
			t.Errorf("%d went to the task without room", n)
		}
		level = ""
		time.Sleep(1600 * time.Millisecond)
		for range 10 {
			if err := ask(overload.Sheddable, true); err != nil {
				t.Error(err)
			}
		}
		// A proxy says it in its own words.
		if code, text := verdict("job", clerk.Overloaded{Job: "job"}); code != http.StatusTooManyRequests || !strings.Contains(text, "no room") {
			t.Errorf("a proxy answers with %d, %q", code, text)
		}
		j.stop(tr)
	})
}

// FuzzHeaders: whatever headers a task sends, what is made of them is bounded.
func FuzzHeaders(f *testing.F) {
	for _, says := range []string{"", httpkey.OverloadedTask, httpkey.OverloadedAll, httpkey.OverloadedQuota, "x"} {
		f.Add(uint16(503), says, "511;1000")
		f.Add(uint16(429), says, "99999;0")
		f.Add(uint16(200), says, "-1;NaN")
	}
	f.Fuzz(func(t *testing.T, code uint16, says, level string) {
		resp := &http.Response{StatusCode: int(code), Header: http.Header{httpkey.HeaderOverloaded: {says}, httpkey.HeaderLevel: {level}}}
		o, ok := overloaded("job", resp)
		if ok != (code == 503 && says != "") || ok && outOfQuota(resp) || o.Elsewhere != (ok && says == httpkey.OverloadedTask) || o.Level.Below >= overload.Priorities || o.Level.Pause > overload.MostPause {
			t.Errorf("%+v, %v", o, ok)
		}
		noMore(resp, o)
		if again, ok := overloaded("job", resp); ok && again.Elsewhere {
			t.Errorf("it may be sent again: %+v", again)
		}
		new(backend).speaksAgainst("job", resp, 0)
	})
}
