// Package limiter keeps one client from harming the others: of what is dear (setting a
// connection up, sending a whole assignment) so many are under way at a time, those of
// different clients in turn, and of what is cheap so many are allowed a second.
//
// A client is an opaque key. It is the address of the peer (see KeyOf) as long as there
// is nothing better to tell clients apart by. What is decided is decided by package
// fair, which is pure.
package limiter

import (
	"context"
	"net"
	"net/netip"

	"google.golang.org/grpc/peer"
)

// KeyOf is the key of a peer: its IP address, of IPv6 the /64 that it is in, or what
// else its address is without a port.
func KeyOf(a net.Addr) string {
	if a == nil {
		return ""
	}
	s := a.String()
	if p, err := netip.ParseAddrPort(s); err == nil {
		ip := p.Addr().Unmap()
		if ip.Is6() {
			if net, err := ip.WithZone("").Prefix(64); err == nil {
				return net.String()
			}
		}
		return ip.String()
	}
	return s
}

// KeyOfContext is the key of the peer of a call, and "" if there is none.
func KeyOfContext(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok {
		return KeyOf(p.Addr)
	}
	return ""
}
