package run

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"
)

// An answer that is not read ends, and gives its place to others.
func TestUnreadAnswersEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lis := bufconn.Listen(1 << 10)
		ended := make(chan time.Duration, 2)
		began := time.Now()
		limited := limitScrapes(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for range 1 << 10 {
				if _, err := w.Write(make([]byte, 1<<10)); err != nil {
					break
				}
			}
			ended <- time.Since(began)
		}))
		srv := newHTTPServer(limited)
		served := make(chan struct{})
		go func() {
			defer close(served)
			_ = srv.Serve(lis)
		}()
		c, err := lis.Dial()
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		time.Sleep(writeLimit - time.Second)
		synctest.Wait()
		if all, of := limited.underWay.Taken(); len(ended) > 0 || all != 1 || of != 1 {
			t.Errorf("too early: %d have ended, %d are under way, of %d addresses", len(ended), all, of)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if all, of := limited.underWay.Taken(); len(ended) != 1 || all != 0 || of != 0 {
			t.Errorf("%d have ended, %d are under way, of %d addresses", len(ended), all, of)
		}
		c.Close()
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
		<-served
	})
}

// unread writes answers that nothing reads: each request to it stays under way.
type unread struct{ writing, over chan struct{} }

func (u unread) ServeHTTP(http.ResponseWriter, *http.Request) {
	u.writing <- struct{}{}
	<-u.over
}

// TestScrapesByNetwork: a machine that has a /64 of IPv6 takes no more with all of its addresses
// than one with a single address, and leaves room for another.
func TestScrapesByNetwork(t *testing.T) {
	u := unread{make(chan struct{}), make(chan struct{})}
	h := limitScrapes(u)
	defer close(u.over)
	refused := func(from string) bool {
		r := httptest.NewRequest("GET", "/metrics", nil)
		r.RemoteAddr = from
		w, done := httptest.NewRecorder(), make(chan struct{})
		go func() { h.ServeHTTP(w, r); close(done) }()
		select {
		case <-u.writing:
			return false
		case <-done:
			return w.Code == http.StatusServiceUnavailable
		}
	}
	for i, from := range []string{"[2001:db8::1]:1", "[2001:db8::2]:1", "[2001:db8::2]:2", "[2001:db8::ffff:3]:1"} {
		if refused(from) {
			t.Fatalf("scrape %d, from %s, is refused", i+1, from)
		}
	}
	if from := "[2001:db8::ffff:4]:1"; !refused(from) {
		t.Errorf("a fifth scrape from one /64, by %s, is not refused", from)
	}
	if from := "[2001:db8:0:1::1]:1"; refused(from) {
		t.Errorf("a scrape from another /64, by %s, is refused", from)
	}
}
