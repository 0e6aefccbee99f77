package etcdlease

import (
	"testing"
	"time"

	"github.com/slicer-project/slicer/lease"
)

// FuzzSession decodes the record of a session, which is refused or comes out as it went in.
func FuzzSession(f *testing.F) {
	f.Add([]byte(sessionText(5*time.Second, "spiffe://corp/ns/cache/task/cache-3")))
	f.Add([]byte("5000 "))
	f.Add([]byte("5000"))
	f.Fuzz(func(t *testing.T, text []byte) {
		ttl, owner, err := parseSession(text)
		if err != nil {
			return
		}
		if lease.CheckTTL(ttl) != nil {
			t.Fatalf("%q gives %s", text, ttl)
		}
		again, same, err := parseSession([]byte(sessionText(ttl, owner)))
		if err != nil || again != ttl || same != owner {
			t.Fatalf("%q gives %s and %q, and those %s and %q: %v", text, ttl, owner, again, same, err)
		}
	})
}
