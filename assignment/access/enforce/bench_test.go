package enforce_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/url"
	"testing"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/access"
	"github.com/slicer-project/slicer/assignment/access/accesstest"
)

// BenchmarkPeer reads an identity off a connection, and BenchmarkCheck asks whether it may
// watch a job whose config has twenty patterns, the last of which matches.
func BenchmarkPeer(b *testing.B) {
	r, ctx := accesstest.Rights(b, "plane: [spiffe://corp/slicer/d1]\n", nil), peerAs("spiffe://corp/web/bob")
	b.ReportAllocs()
	for b.Loop() {
		r.Peer(ctx)
	}
}

func BenchmarkCheck(b *testing.B) {
	r := accesstest.Rights(b, "plane: [spiffe://corp/slicer/d1]\n", nil)
	given := map[assignment.Verb][]string{assignment.Watch: {"spiffe://corp/web/*"}}
	for i := range 19 {
		given[assignment.Own] = append(given[assignment.Own], fmt.Sprintf("spiffe://corp/web/server-%d/task/{task}", i))
	}
	a, err := assignment.AccessOf(given)
	if err != nil {
		b.Fatal(err)
	}
	c := r.Peer(peerAs("spiffe://corp/web/bob"))
	b.ReportAllocs()
	for b.Loop() {
		if err := r.Check(c, access.Question{Verb: assignment.Watch, Job: "web", Access: a}); err != nil {
			b.Fatal(err)
		}
	}
}

func peerAs(id string) context.Context {
	u, err := url.Parse(id)
	if err != nil {
		panic(err)
	}
	c := &x509.Certificate{URIs: []*url.URL{u}}
	return peer.NewContext(context.Background(), &peer.Peer{
		Addr:     &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7},
		AuthInfo: credentials.TLSInfo{State: tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{c}}}},
	})
}
