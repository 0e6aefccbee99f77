package run

import (
	"fmt"
	"net/http"
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
