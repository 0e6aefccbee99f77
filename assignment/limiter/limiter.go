// Package limiter keeps one client from harming the others: of what is dear (setting a
// connection up, sending a whole assignment) so many are under way at a time, those of
// different clients in turn, and of what is cheap so many are allowed a second.
//
// A client is an opaque key: the identity in the peer's certificate (see KeyOfContext), or
// its address (see KeyOf), as long as no certificate has been seen. What is decided is decided by package
// fair, which is pure.
package limiter

import (
	"context"
	"net"
	"net/netip"

	"google.golang.org/grpc/peer"

	"github.com/slicer-project/slicer/assignment/access"
	"github.com/slicer-project/slicer/assignment/access/enforce"
)

// KeyOf is the key of a peer: its IP address, of IPv6 the /64 that it is in, as a machine may
// have any of the others, or what else its address is without a port.
func KeyOf(a net.Addr) string {
	if a == nil {
		return ""
	}
	return KeyOfAddress(a.String())
}

// KeyOfAddress is KeyOf for an address in text, IP:port.
func KeyOfAddress(s string) string {
	if p, err := netip.ParseAddrPort(s); err == nil {
		ip := p.Addr().Unmap()
		if ip.Is6() && !ip.IsLoopback() {
			if net, err := ip.WithZone("").Prefix(64); err == nil {
				return net.String()
			}
		}
		return ip.String()
	}
	return s
}

// KeyOfContext is the key of the peer of a call, and "" if there is none. It is that of its
// identity if that is verified, wherever it calls from, and else of its address.
func KeyOfContext(ctx context.Context) string {
	s := HandshakeOf(ctx)
	if s == nil {
		return keyOfPeer(ctx)
	}
	if s.client.Load() == nil {
		key := keyOfPeer(ctx)
		s.client.Store(&key)
	}
	return *s.client.Load()
}

func keyOfPeer(ctx context.Context) string {
	if id := enforce.PeerIdentity(ctx); id != access.Anonymous {
		return "identity " + string(id) // no name of a host passes for an address
	}
	if p, ok := peer.FromContext(ctx); ok {
		return KeyOf(p.Addr)
	}
	return ""
}
