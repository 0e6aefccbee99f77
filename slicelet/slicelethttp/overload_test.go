package slicelethttp

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/httpkey"
	"github.com/slicer-project/slicer/assignment/subscriber/subscribertest"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// TestOverloaded: what a handler says that has no room depends on whether another task could
// have some.
func TestOverloaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, slicerv1.Mode_MODE_AFFINITY)
		defer c.stop()
		h, err := Handler(c.s, http.HandlerFunc(Overloaded), Config{})
		if err != nil {
			t.Fatal(err)
		}
		says := func(when, key, before, want string) {
			t.Helper()
			r := request(key, "")
			if before != "" {
				r.Header.Set(httpkey.HeaderAttempt, before)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != http.StatusServiceUnavailable || w.Header().Get(httpkey.HeaderOverloaded) != want {
				t.Errorf("%s: %d, %v, want %s", when, w.Code, w.Header(), want)
			}
		}
		c.assign(1, assignment.TaskRunning, "mo")
		says("one owner", keyIn(0), "", httpkey.OverloadedAll)
		says("no key", "", "", httpkey.OverloadedTask)
		self, err := wire.TaskFromProto(c.server.Heard()[0].GetHello().GetTask())
		if err != nil {
			t.Fatal(err)
		}
		var place assignment.Placement
		place.Add(0, 0, 1)
		both, err := assignment.Successor(c.last, assignment.Header{Job: "job", StoreID: 1, Generation: 2}, []assignment.Task{self, subscribertest.Task("other", 1)}, place)
		if err != nil {
			t.Fatal(err)
		}
		c.server.Put(both)
		synctest.Wait()
		says("two owners", keyIn(0), "", httpkey.OverloadedTask)
		for range 20 {
			says("no numbers", keyIn(0), "many", httpkey.OverloadedTask)
		}
		time.Sleep(3 * time.Second)
		for range 3 {
			h.ServeHTTP(httptest.NewRecorder(), func() *http.Request {
				r := request(keyIn(0), "")
				r.Header.Set(httpkey.HeaderAttempt, "2")
				return r
			}())
		}
		says("many retries", keyIn(0), "", httpkey.OverloadedAll)
		says("many retries, no key", "", "", httpkey.OverloadedAll)
		time.Sleep(3 * time.Second)
		says("no more of them", keyIn(0), "", httpkey.OverloadedTask)
		w := httptest.NewRecorder()
		Overloaded(w, httptest.NewRequest("GET", "/", nil))
		if w.Code != http.StatusServiceUnavailable || w.Header().Get(httpkey.HeaderOverloaded) != "" {
			t.Errorf("without a slicelet: %d, %v", w.Code, w.Header())
		}
		// A handler's Handle is none where there is no key.
		h, err = Handler(c.s, http.HandlerFunc(tell), Config{})
		if err != nil {
			t.Fatal(err)
		}
		w = httptest.NewRecorder()
		h.ServeHTTP(w, request("", ""))
		if got := w.Body.String(); got != "false false false" {
			t.Errorf("the handle of a request without a key: %s", got)
		}
	})
}
