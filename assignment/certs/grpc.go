package certs

import (
	"context"
	"crypto/tls"
	"net"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// DialOptions are those of a gRPC client, such as a clerk or a slicelet.
func (s *Source) DialOptions() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithTransportCredentials(s.Client())}
}

// Client returns the credentials of gRPC clients: they show the certificate, if there is
// one, to servers that ask, and check servers by the authorities and the name that is
// dialed.
func (s *Source) Client() credentials.TransportCredentials {
	return s.credentials(func(m *material) credentials.TransportCredentials { return credentials.NewTLS(m.client()) })
}

// Server returns the credentials of a gRPC server. What auth demands of clients is checked by
// the authorities, without which it has to be tls.NoClientCert. What is refused is logged and
// counted.
func (s *Source) Server(auth tls.ClientAuthType) credentials.TransportCredentials {
	return s.credentials(func(m *material) credentials.TransportCredentials { return credentials.NewTLS(m.server(auth, nil)) })
}

func (s *Source) credentials(of func(*material) credentials.TransportCredentials) credentials.TransportCredentials {
	return &transport{source: s, of: &each[credentials.TransportCredentials]{of: of}}
}

// transport makes gRPC's own credentials of what is in use at each handshake.
type transport struct {
	source *Source
	of     *each[credentials.TransportCredentials]
	name   string // overrides the server's, if it is not empty
}

func (t *transport) now() credentials.TransportCredentials { return t.of.get(t.source.material()) }

// ClientHandshake is called by gRPC.
func (t *transport) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if t.name != "" {
		authority = t.name
	}
	secured, info, err := t.now().ClientHandshake(ctx, authority, conn)
	if err != nil {
		return nil, nil, t.source.presented(err)
	}
	return &unheard{Conn: secured, source: t.source}, info, nil
}

// ServerHandshake is called by gRPC.
func (t *transport) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secured, info, err := t.now().ServerHandshake(conn)
	if err != nil {
		t.source.refused.note(conn.RemoteAddr().String(), err.Error())
	}
	return secured, info, err
}

// Info is called by gRPC.
func (t *transport) Info() credentials.ProtocolInfo {
	info := t.now().Info()
	//lint:ignore SA1019 gRPC itself takes the authority of a channel from it
	info.ServerName = t.name
	return info
}

// Clone is called by gRPC.
func (t *transport) Clone() credentials.TransportCredentials {
	c := *t
	return &c
}

// OverrideServerName is part of gRPC's interface. grpc.WithAuthority takes its place.
func (t *transport) OverrideServerName(name string) error {
	t.name = name
	return nil
}

// each makes one thing of each material: what sessions are resumed by ends with that.
type each[T any] struct {
	of   func(*material) T
	last atomic.Pointer[made[T]]
}

type made[T any] struct {
	from *material
	it   T
}

func (e *each[T]) get(m *material) T {
	if last := e.last.Load(); last != nil && last.from == m {
		return last.it
	}
	now := &made[T]{m, e.of(m)}
	e.last.Store(now)
	return now.it
}
