package clerkgrpc

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // for services that are registered beside the relay
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
)

const (
	relayConnectTimeout = 5 * time.Second
	relayBackoff        = time.Second // at most, between attempts to connect
)

// What a Relay tells its server of an RPC in consistent mode, as httpkey.HeaderGeneration and
// httpkey.HeaderToken do for HTTP.
const (
	relayGeneration = "slicer-generation"
	relayToken      = "slicer-fencing-token"
)

// Relay passes RPCs of any service on to one server beside it, as bytes, as a Proxy does to the
// tasks of a job. Besides, the server gets the metadata that say what the RPC's key is, how
// critical it is and what it is charged to.
type Relay struct {
	conn  *grpc.ClientConn
	most  int
	proxy Proxy // for what they have in common
}

// NewRelay is for the server at an address, without TLS. No message may be larger than so many bytes.
func NewRelay(address string, maxMessage int) (*Relay, error) {
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithIdleTimeout(0), grpc.WithDisableRetry(), grpc.WithStreamInterceptor(markUnsent),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 2, Jitter: .2, MaxDelay: relayBackoff}, MinConnectTimeout: relayConnectTimeout}),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{}), grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)))
	if err != nil {
		return nil, err
	}
	return &Relay{conn: conn, most: maxMessage}, nil
}

// Connect has it connect without waiting, as the server is known to be there.
func (r *Relay) Connect() {
	r.conn.ResetConnectBackoff()
	r.conn.Connect()
}

// Close ends the connection, and with it the RPCs, and waits for what they run.
func (r *Relay) Close() error {
	err := r.conn.Close()
	r.proxy.rpcs.Wait()
	return err
}

// ServerOptions are for a gRPC server whose RPCs handler handles, by Pass. Services may be
// registered there besides, which take theirs.
func (r *Relay) ServerOptions(handler grpc.StreamHandler) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.UnknownServiceHandler(handler),
		grpc.ForceServerCodecV2(eitherCodec{encoding.GetCodecV2("proto")}),
		grpc.MaxRecvMsgSize(r.most),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.ConnectionTimeout(proxyConnectTimeout),
		grpc.WaitForHandlers(true),
	}
}

// UnsentError is that of an RPC that has not gone to the server, as there is no connection.
type UnsentError struct{ Err error }

func (e *UnsentError) Error() string { return e.Err.Error() }

// Unwrap returns the connection's error.
func (e *UnsentError) Unwrap() error { return e.Err }

// Pass passes an RPC on, and returns how it ends: an *UnsentError if it has not begun. The server
// is told the generation and the token unless the token is 0.
func (r *Relay) Pass(in grpc.ServerStream, generation, token assignment.Generation) error {
	ctx := in.Context()
	method, _ := grpc.MethodFromServerStream(in)
	md, _ := metadata.FromIncomingContext(ctx)
	kind := subtype(http.Header{"Content-Type": md["content-type"]})
	for name := range md {
		switch name {
		// gRPC sends its own, and what is between clients and tasks ends here.
		case ":authority", "user-agent", "content-type", "grpc-accept-encoding", relayGeneration, relayToken,
			"slicer-attempt", "slicer-stands-for", "grpc-previous-rpc-attempts":
			delete(md, name)
		default:
			if strings.HasPrefix(name, ":") {
				delete(md, name)
			}
		}
	}
	if token > 0 {
		md[relayGeneration] = []string{strconv.FormatInt(int64(generation), 10)}
		md[relayToken] = []string{strconv.FormatInt(int64(token), 10)}
	}
	r.proxy.rpcs.Add(1)
	defer r.proxy.rpcs.Done()
	return r.proxy.relay(metadata.NewOutgoingContext(ctx, md), in, r.conn, method, kind)
}

// markUnsent makes an *UnsentError of one by which a stream could not begin.
func markUnsent(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := streamer(ctx, desc, cc, method, opts...)
	if status.Code(err) == codes.Unavailable {
		return nil, &UnsentError{err}
	}
	return s, err
}

// eitherCodec takes frames, and what another codec takes.
type eitherCodec struct{ encoding.CodecV2 }

// Marshal is encoding.CodecV2's.
func (c eitherCodec) Marshal(v any) (mem.BufferSlice, error) {
	if f, ok := v.(*frame); ok {
		return rawCodec{}.Marshal(f)
	}
	return c.CodecV2.Marshal(v)
}

// Unmarshal is encoding.CodecV2's.
func (c eitherCodec) Unmarshal(data mem.BufferSlice, v any) error {
	if f, ok := v.(*frame); ok {
		return rawCodec{}.Unmarshal(data, f)
	}
	return c.CodecV2.Unmarshal(data, v)
}

// Name is encoding.CodecV2's.
func (eitherCodec) Name() string { return "" }

// RequestOf is an RPC as rules look at it: the method is its path, and metadata are its headers.
func RequestOf(in grpc.ServerStream) *http.Request {
	method, _ := grpc.MethodFromServerStream(in)
	md, _ := metadata.FromIncomingContext(in.Context())
	return requestOf(in.Context(), method, md)
}
