package limiter

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/url"
	"testing"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// A client is who its verified certificate says, and else where it calls from.
func TestKeyOfContext(t *testing.T) {
	from := &net.TCPAddr{IP: net.ParseIP("10.0.0.1"), Port: 7}
	with := func(verified bool, id string, names ...string) context.Context {
		c := &x509.Certificate{DNSNames: names}
		if id != "" {
			c.URIs = []*url.URL{{Scheme: "spiffe", Host: "corp", Path: id}}
		}
		info := credentials.TLSInfo{State: tls.ConnectionState{PeerCertificates: []*x509.Certificate{c}}}
		if verified {
			info.State.VerifiedChains = [][]*x509.Certificate{{c}}
		}
		return peer.NewContext(t.Context(), &peer.Peer{Addr: from, AuthInfo: info})
	}
	for _, tc := range []struct {
		what string
		ctx  context.Context
		want string
	}{
		{"no peer", t.Context(), ""},
		{"plain text", peer.NewContext(t.Context(), &peer.Peer{Addr: from}), "10.0.0.1"},
		{"a certificate", with(true, "/web"), "identity spiffe://corp/web"},
		{"a name that looks like an address", with(true, "", "10.0.0.2"), "identity 10.0.0.2"},
		{"a certificate without a name", with(true, ""), "10.0.0.1"},
		{"one that is not verified", with(false, "/web"), "10.0.0.1"},
	} {
		if got := KeyOfContext(tc.ctx); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.what, got, tc.want)
		}
	}
}
