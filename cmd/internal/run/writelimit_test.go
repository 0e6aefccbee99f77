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
		var ended []time.Duration
		began := time.Now()
		limited := limitScrapes(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for range 1 << 10 {
				if _, err := w.Write(make([]byte, 1<<10)); err != nil {
					break
				}
			}
			ended = append(ended, time.Since(began))
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
		if len(ended) > 0 || limited.all != 1 || len(limited.of) != 1 {
			t.Errorf("too early: ended after %v, %d under way of %v", ended, limited.all, limited.of)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if len(ended) != 1 || limited.all != 0 || len(limited.of) != 0 {
			t.Errorf("ended after %v, %d under way of %v", ended, limited.all, limited.of)
		}
		c.Close()
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
		<-served
	})
}
