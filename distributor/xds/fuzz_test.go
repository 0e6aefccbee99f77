package xds

import (
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	xdsv3 "github.com/slicer-project/slicer/proto/xds/v3"
)

// FuzzRequests: whatever a client says, nothing is sent before it has answered the last of a
// type, and what is kept of it is bounded by what it asks for.
func FuzzRequests(f *testing.F) {
	tape := func(all ...*xdsv3.DiscoveryRequest) (b []byte) {
		for _, m := range all {
			b = protowire.AppendBytes(b, marshal(m))
		}
		return b
	}
	f.Add(tape(
		&xdsv3.DiscoveryRequest{TypeUrl: typeURLs[listeners], ResourceNames: []string{"web", "web"}},
		&xdsv3.DiscoveryRequest{TypeUrl: typeURLs[routes], ResourceNames: []string{"web"}, VersionInfo: "17"},
		&xdsv3.DiscoveryRequest{TypeUrl: typeURLs[listeners], ResourceNames: []string{"web"}, ResponseNonce: "1"},
		&xdsv3.DiscoveryRequest{TypeUrl: typeURLs[clusters], ResourceNames: []string{"web/any", "web/own:web-0.a0", "web/task:web-1.a1"}, ResponseNonce: "2"},
	))
	f.Add([]byte{0})
	b := newBook("web")
	b.set(time.UnixMilli(baseGen), dealt(f, baseGen, 3, 12), usual)
	f.Fuzz(func(t *testing.T, data []byte) {
		now := time.UnixMilli(baseGen)
		var s session
		open := make(map[kind]string)
		for len(data) > 0 {
			one, n := protowire.ConsumeBytes(data)
			if n < 0 {
				return
			}
			data = data[n:]
			m := new(xdsv3.DiscoveryRequest)
			if proto.Unmarshal(one, m) != nil {
				return
			}
			checkNode(m.GetNode(), "")
			r, err := checkRequest(m, now)
			if err != nil {
				return
			}
			if said := s.take(now, r); said != nil {
				if open[r.kind] != r.nonce {
					t.Fatalf("%q answers %q", r.nonce, open[r.kind])
				}
				delete(open, r.kind)
			}
			if now = now.Add(100 * time.Millisecond); s.late(now) {
				return
			}
			for range 2 * numKinds {
				a, at := s.next(now, func(k kind, name string) (*resource, verdict) {
					return b.find(now, k, name, flavor{}, func() *resource { return newResource("web", baseGen, endpoints, anyEndpoints(b.a, 1)) })
				})
				if a == nil {
					if !at.IsZero() && !at.After(now) {
						t.Fatal("something is due that is not sent")
					}
					break
				}
				if open[a.kind] != "" {
					t.Fatalf("%d is sent twice without an answer", a.kind)
				}
				open[a.kind] = a.nonce
			}
			for k := range s.of {
				if len(s.of[k].sent) > len(s.of[k].names) {
					t.Fatal("more is remembered than is asked for")
				}
			}
			if len(s.jobs()) > maxNames*int(numKinds) {
				t.Fatal("too many jobs")
			}
		}
	})
}
