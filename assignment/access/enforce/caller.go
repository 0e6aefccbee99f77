package enforce

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"strings"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/slicer-project/slicer/assignment/access"
)

// Headers of a call that a Distributor passes on for another: with whose identity, from
// where, and by which word of namelessWords that identity is none.
const (
	identityHeader = "slicer-identity"
	addressHeader  = "slicer-address"
	namelessHeader = "slicer-nameless"
)

// maxAddress bounds what addressHeader may say, bytes: the addresses of a client and of two
// Distributors fit.
const maxAddress = 200

var namelessWords = map[access.Nameless]string{access.NoCertificate: "no-certificate", access.NoName: "no-name", access.BadName: "bad-name"}

// Within is the network of addresses of peers that are in this process.
const Within = "in-process"

// Caller is who a call or stream comes from.
type Caller struct {
	// Identity is that of the peer's certificate, or the one that a peer of the control plane
	// passes the call on for.
	Identity access.Identity
	// Nameless is why Identity is Anonymous, where that is known.
	Nameless access.Nameless
	// Address is the peer's, or the one that a peer of the control plane passes the call on
	// for.
	Address string
	// Via is the peer's address if it passes the call on, else empty.
	Via string
	// Plane reports whether the peer itself is one of the control plane's.
	Plane bool
	// Carrier reports whether its connections carry the streams of many.
	Carrier bool
	// Within reports whether the peer is in this process.
	Within bool
	// own reports whether it is this process itself, see Own.
	own bool
}

type ownKey struct{}

// Own is the context of a call that a process makes of one of its own parts, for itself and
// not for a peer: it may read every job. The identity is what the call is passed on for to
// other processes, which go by their policies: that of the process's own certificate.
func Own(ctx context.Context, id access.Identity) context.Context {
	return context.WithValue(ctx, ownKey{}, id)
}

// From says where the call comes from, for logs and histories: "address", or "address via
// address of the Distributor".
func (c Caller) From() string {
	if c.Via == "" {
		return c.Address
	}
	return c.Address + " via " + c.Via
}

// Name is the identity for logs: a peer in this process shows no certificate, and needs none.
func (c Caller) Name() string {
	if c.Within && c.Identity == access.Anonymous {
		return Within
	}
	return string(c.Identity)
}

// Caller reads it off a call's context.
func (r *Rights) Caller(ctx context.Context) Caller {
	c := r.Peer(ctx)
	if c.Plane {
		c.forwarded(ctx)
	}
	return c
}

// Peer is the Caller where no call is passed on: its identity is always that of the peer
// itself.
func (r *Rights) Peer(ctx context.Context) Caller {
	if id, ok := ctx.Value(ownKey{}).(access.Identity); ok {
		return Caller{Identity: id, own: true}
	}
	cert := certificate(ctx)
	var c Caller
	c.Identity, c.Nameless = access.Read(cert)
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		c.Address, c.Within = p.Addr.String(), p.Addr.Network() == Within
	}
	policy, _ := r.Policy()
	c.Plane = r != nil && r.within || policy.Plane(c.Identity)
	c.Carrier = policy.Carrier(c.Identity)
	return c
}

// PeerIdentity is the one in the verified certificate of a call's peer.
func PeerIdentity(ctx context.Context) access.Identity { return access.Of(certificate(ctx)) }

// certificate is the peer's, nil if there is none that was verified.
func certificate(ctx context.Context) *x509.Certificate {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok {
		return nil
	}
	return verified(&info.State)
}

func verified(s *tls.ConnectionState) *x509.Certificate {
	if s == nil || len(s.VerifiedChains) == 0 || len(s.VerifiedChains[0]) == 0 {
		return nil
	}
	return s.VerifiedChains[0][0]
}

// HTTPCaller is the one of a request, which no part of the control plane passes on.
func HTTPCaller(r *http.Request) Caller {
	id, why := access.Read(verified(r.TLS))
	return Caller{Identity: id, Nameless: why, Address: r.RemoteAddr}
}

// forwarded takes what the peer says of whom it passes the call on for. An identity that
// cannot be one is Anonymous; an address that cannot be one is left out.
func (c *Caller) forwarded(ctx context.Context) {
	md, _ := metadata.FromIncomingContext(ctx)
	given := md.Get(identityHeader)
	if len(given) == 0 {
		return
	}
	c.Identity, c.Nameless, c.Within = access.Identity(given[0]), access.Named, false
	if len(given) > 1 || !c.Identity.Valid() {
		c.Identity = access.Anonymous
	}
	if said := md.Get(addressHeader); len(said) == 1 && validAddress(said[0]) {
		c.Address, c.Via = said[0], c.Address
	}
	if said := md.Get(namelessHeader); len(said) == 1 && c.Identity == access.Anonymous {
		for why, word := range namelessWords {
			if word == said[0] {
				c.Nameless = why
			}
		}
	}
}

// validAddress reports whether a text may be said to be an address, or several of them with
// "via" between: gRPC lets no other characters through.
func validAddress(s string) bool {
	return s != "" && len(s) <= maxAddress && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

// Forward is the context for passing a call on in the name of its caller.
func Forward(ctx context.Context, c Caller) context.Context {
	said := []string{identityHeader, string(c.Identity)}
	if from := c.From(); validAddress(from) {
		said = append(said, addressHeader, from)
	}
	if word := namelessWords[c.Nameless]; word != "" {
		said = append(said, namelessHeader, word)
	}
	return metadata.AppendToOutgoingContext(ctx, said...)
}
