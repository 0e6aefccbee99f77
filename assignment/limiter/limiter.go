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
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

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
	return s.peer(ctx).key
}

// client is whose the calls of a connection are, and how those are refused that it makes after
// it was refused too often.
type client struct {
	key     string
	refusal error
}

func (s *Handshake) peer(ctx context.Context) *client {
	c := s.client.Load()
	if c == nil {
		key := keyOfPeer(ctx)
		c = &client{key, status.Errorf(codes.ResourceExhausted, "%s asks too often for more than it may have: %d refusals a second are allowed, and %d at once", key, time.Second/refusalEvery, refusalBurst)}
		s.client.Store(c)
	}
	return c
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
