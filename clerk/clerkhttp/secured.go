package clerkhttp

import (
	"context"
	"crypto/tls"
	"net"

	"github.com/slicer-project/slicer/clerk"
)

// secured sets TLS up on what d connects, by a config made for that connection. net/http
// has one config for all of a transport's.
func (p *pool) secured(d dial, config func() *tls.Config) dial {
	protocols, limit := p.protocols(), p.http.TLSHandshakeTimeout
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		nc, err := d(ctx, network, address)
		if err != nil {
			return nil, err
		}
		if limit > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, limit)
			defer cancel()
		}
		cfg := config().Clone()
		if cfg.ServerName == "" {
			if cfg.ServerName, _, err = net.SplitHostPort(address); err != nil {
				cfg.ServerName = address
			}
		}
		if cfg.NextProtos == nil {
			cfg.NextProtos = protocols
		}
		// As it is: net/http asks a *tls.Conn which protocol was agreed on.
		secure := tls.Client(nc, cfg)
		if err := secure.HandshakeContext(ctx); err != nil {
			nc.Close()
			return nil, clerk.Unreached{Err: err}
		}
		return secure, nil
	}
}

// protocols are those that the transport would offer.
func (p *pool) protocols() []string {
	http1, http2 := true, p.http.ForceAttemptHTTP2
	if set := p.http.Protocols; set != nil {
		http1, http2 = set.HTTP1(), set.HTTP2()
	}
	var all []string
	if http2 {
		all = append(all, "h2")
	}
	if http1 {
		all = append(all, "http/1.1")
	}
	return all
}
