package slicelethttp

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// serve runs a handler on a real server, behind a checked writer or without one, and
// returns the answer.
func serve(t *testing.T, check bool, method string, handler func(w http.ResponseWriter, lose func())) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Outer", "kept")
		if !check {
			handler(w, func() {})
			return
		}
		owned := true
		c := newCheckedWriter(w, func() bool { return owned })
		handler(&recorder{ResponseWriter: c}, func() { owned = false })
		if !c.finish() {
			if c.begun {
				panic(http.ErrAbortHandler)
			}
			c.discard()
			w.WriteHeader(http.StatusConflict)
		}
	}))
	defer srv.Close()
	req, err := http.NewRequest(method, srv.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := srv.Client().Do(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	resp.Header.Del("Date")
	return fmt.Sprint(resp.StatusCode, resp.Header, resp.ContentLength, resp.TransferEncoding, resp.Trailer, string(body), err)
}

// An answer that is let out is the same, byte for byte and header for header, as
// without the check.
func TestCheckedIsTransparent(t *testing.T) {
	handlers := map[string]func(w http.ResponseWriter){
		"nothing": func(http.ResponseWriter) {},
		"small":   func(w http.ResponseWriter) { fmt.Fprint(w, "<html>small") },
		"code": func(w http.ResponseWriter) {
			w.Header().Set("X-A", "1")
			w.WriteHeader(http.StatusTeapot)
			w.Header().Set("X-Late", "1")
			fmt.Fprint(w, "short")
		},
		"no body": func(w http.ResponseWriter) { w.WriteHeader(http.StatusNoContent) },
		"early":   func(w http.ResponseWriter) { w.WriteHeader(http.StatusEarlyHints); fmt.Fprint(w, "then") },
		"large":   func(w http.ResponseWriter) { fmt.Fprint(w, strings.Repeat("x", 3*maxHeld)) },
		"in pieces": func(w http.ResponseWriter) {
			for range 3 * maxHeld / 10 {
				fmt.Fprint(w, "0123456789")
			}
		},
		"length":  func(w http.ResponseWriter) { w.Header().Set("Content-Length", "4"); fmt.Fprint(w, "four") },
		"flushed": func(w http.ResponseWriter) { w.(http.Flusher).Flush(); fmt.Fprint(w, "after") },
		"trailers": func(w http.ResponseWriter) {
			w.Header().Set("Trailer", "X-T")
			fmt.Fprint(w, "body")
			w.Header().Set("X-T", "1")
			w.Header().Set(http.TrailerPrefix+"X-U", "2")
		},
	}
	for name, h := range handlers {
		for _, method := range []string{"GET", "HEAD"} {
			f := func(w http.ResponseWriter, _ func()) { h(w) }
			if got, want := serve(t, true, method, f), serve(t, false, method, f); got != want {
				t.Errorf("%s %s: %.300s\nwant %.300s", method, name, got, want)
			}
		}
	}
}

// TestCheckedHoldsBack: what the handler has made is forgotten, or what has begun is
// cut off.
func TestCheckedHoldsBack(t *testing.T) {
	var wrote error
	for name, c := range map[string]struct {
		handler func(w http.ResponseWriter, lose func())
		want    string
	}{
		"nothing said": {func(_ http.ResponseWriter, lose func()) { lose() }, "409 map[Content-Length:[0] X-Outer:[kept]] 0 []"},
		"small": {func(w http.ResponseWriter, lose func()) {
			w.Header().Set("X-A", "1")
			w.Header().Set("X-Outer", "changed")
			w.WriteHeader(http.StatusCreated)
			fmt.Fprint(w, "secret")
			lose()
		}, "409 map[Content-Length:[0] X-Outer:[kept]] 0 []"},
		"flushed too late": {func(w http.ResponseWriter, lose func()) {
			fmt.Fprint(w, "secret")
			lose()
			wrote = http.NewResponseController(w).Flush()
		}, "409 map[Content-Length:[0] X-Outer:[kept]] 0 []"},
		"hijacked too late": {func(w http.ResponseWriter, lose func()) {
			lose()
			_, _, wrote = http.NewResponseController(w).Hijack()
		}, "409 map[Content-Length:[0] X-Outer:[kept]] 0 []"},
	} {
		wrote = errLost
		if got := serve(t, true, "GET", c.handler); !strings.HasPrefix(got, c.want) || strings.Contains(got, "secret") || !errors.Is(wrote, errLost) {
			t.Errorf("%s: %s; want %s; the handler was told %v", name, got, c.want, wrote)
		}
	}
	got := serve(t, true, "GET", func(w http.ResponseWriter, lose func()) {
		w.(http.Flusher).Flush()
		fmt.Fprint(w, "let out")
		lose()
		_, wrote = fmt.Fprint(w, "secret")
	})
	if !strings.HasPrefix(got, "200 ") || !strings.HasSuffix(got, io.ErrUnexpectedEOF.Error()) || strings.Contains(got, "secret") || !errors.Is(wrote, errLost) {
		t.Errorf("begun: %s, %v", got, wrote)
	}
}
