package httpkey

import (
	"net/http"
	"testing"
	"time"
)

// FuzzTimeout: whatever a header says, the time is in range, and only decimal numbers say one.
func FuzzTimeout(f *testing.F) {
	for _, s := range []string{"", "0", "1", "-1", "86400000", "86400001", "1.5", "1e3", "9223372036854775808", "0x10", " 5", "+5"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, ok := TimeoutOf(http.Header{HeaderTimeout: {"7", s}})
		if ok != (d > 0) || d > MaxTimeout || d%time.Millisecond != 0 {
			t.Errorf("%q: %v, %v", s, d, ok)
		}
	})
}
