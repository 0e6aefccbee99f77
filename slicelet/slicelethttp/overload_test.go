package slicelethttp

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/httpkey"
	"github.com/slicer-project/slicer/assignment/subscriber/subscribertest"
	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/loadbalance/overload"
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
		for range 40 {
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

// TestAdmission: requests that there is no room for are refused before their handler runs,
// the least critical first, if the job's admission is on.
func TestAdmission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := 0.
		c := newCluster(t, slicerv1.Mode_MODE_AFFINITY, func() float64 { return full })
		defer c.stop()
		c.assign(1, assignment.TaskRunning, "mo")
		ran, pressure := false, 0.
		h, err := Handler(c.s, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			ran, pressure = true, overload.Pressure(r.Context())
		}), Config{})
		if err != nil {
			t.Fatal(err)
		}
		ask := func(criticality, key string) *httptest.ResponseRecorder {
			time.Sleep(overload.Tick)
			ran = false
			r := request(key, "")
			r.Header.Set(httpkey.HeaderCriticality, criticality)
			r.Header.Set(httpkey.HeaderCohort, "5")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w
		}
		for _, x := range []struct {
			mode    slicerv1.Admission
			refuses bool
		}{{slicerv1.Admission_ADMISSION_ON, true}, {slicerv1.Admission_ADMISSION_REPORT, false}, {slicerv1.Admission_ADMISSION_OFF, false}} {
			c.server.Say(&slicerv1.Status{TakesReports: true, Mode: slicerv1.Mode_MODE_AFFINITY, Overload: &slicerv1.OverloadConfig{Admission: x.mode}})
			synctest.Wait()
			full = 0
			for range 10 {
				for _, criticality := range []string{"sheddable", "critical_plus"} {
					if w := ask(criticality, keyIn(0)); w.Code != http.StatusOK {
						t.Fatal(x.mode, criticality, w.Code)
					}
				}
			}
			full = 1.5 // half of what is asked for is critical, so that fits
			for _, y := range []struct{ criticality, key, says string }{{"sheddable", keyIn(0), httpkey.OverloadedAll}, {"sheddable", "", httpkey.OverloadedTask}, {"critical_plus", keyIn(0), ""}} {
				w := ask(y.criticality, y.key)
				if l := overload.ParseLevel(w.Header().Get(httpkey.HeaderLevel)); (l.Below > 0) != x.refuses {
					t.Errorf("%s, %s: the answer says level %v", x.mode, y.criticality, l)
				}
				if !x.refuses {
					y.says = ""
				}
				// Of one that is let in only for the report, all.
				if want := y.criticality == "sheddable" && x.mode == slicerv1.Admission_ADMISSION_REPORT; ran && (pressure == 1) != want || x.mode == slicerv1.Admission_ADMISSION_OFF && pressure != 0 {
					t.Errorf("%s, %s: pressure %v", x.mode, y.criticality, pressure)
				}
				if refused := w.Code == http.StatusServiceUnavailable; w.Header().Get(httpkey.HeaderOverloaded) != y.says || refused != (y.says != "") || refused == ran {
					t.Errorf("%s, %s, %q: %d, %v, handler ran: %v", x.mode, y.criticality, y.key, w.Code, w.Header(), ran)
				}
			}
		}
	})
}

// TestHandlersFull: handlers wait for one of two slots, without bound, and one key asks for
// ten times what there is: the keys beside it are served nearly all, and nearly as much as
// the slots allow is answered in time. Without admission next to nothing is.
func TestHandlersFull(t *testing.T) {
	for _, on := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, slicerv1.Mode_MODE_AFFINITY)
			defer c.stop()
			mode := slicerv1.Admission_ADMISSION_OFF
			if on {
				mode = slicerv1.Admission_ADMISSION_ON
			}
			c.server.Say(&slicerv1.Status{TakesReports: true, Mode: slicerv1.Mode_MODE_AFFINITY, ReportIntervalMs: 1000, Overload: &slicerv1.OverloadConfig{Admission: mode}})
			c.assign(1, assignment.TaskRunning, "m")
			slots := make(chan struct{}, 2)
			h, err := Handler(c.s, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				slots <- struct{}{}
				time.Sleep(40 * time.Millisecond)
				<-slots
			}), Config{})
			if err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			var inTime, offered [2]atomic.Int64
			flow := func(which int, every time.Duration, key func(i int) string) {
				for i := range int(30 * time.Second / every) {
					counts := i > int(8*time.Second/every)
					wg.Go(func() {
						r := request(key(i), "")
						r.Header.Set(httpkey.HeaderTimeout, "400")
						w := httptest.NewRecorder()
						begun := time.Now()
						h.ServeHTTP(w, r)
						if counts {
							if offered[which].Add(1); w.Code == http.StatusOK && time.Since(begun) <= 400*time.Millisecond {
								inTime[which].Add(1)
							}
						}
					})
					time.Sleep(every)
				}
			}
			wg.Go(func() { flow(0, 2*time.Millisecond, func(int) string { return "hot" }) })
			flow(1, 40*time.Millisecond, func(i int) string { return strconv.Itoa(i % 100) })
			wg.Wait()
			share := func(which int) float64 { return float64(inTime[which].Load()) / float64(offered[which].Load()) }
			good := float64(inTime[0].Load()+inTime[1].Load()) / 22 / 50
			t.Logf("admission %t: in time %.3f of the hot key's, %.3f of others; %.2f of what the slots can do", on, share(0), share(1), good)
			if on && (good < .85 || share(1) < .95) || !on && good > .2 {
				t.Error("that is not right")
			}
		})
	}
}
