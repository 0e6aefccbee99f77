package crowdtest

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// stream is one Watch on a connection of its own, on net/http's HTTP/2: with gRPC's
// client each connection costs its process several times what it costs the server, so
// that ten thousand at once would show how fast the crowd is and nothing else.
type stream struct {
	conn net.Conn
	up   *io.PipeWriter
	resp *http.Response
}

var errTimedOut = errors.New("no connection in time")

// window is the one that package subscriber has.
const window = 1 << 20

// open connects, says hello and waits for the first word. A server that has not
// answered the connection within patience is given up. connected is called when it has,
// or will not.
func open(ctx context.Context, address string, patience time.Duration, hello *slicerv1.Hello, connected func()) (*stream, error) {
	defer connected()
	ctx, cancel := context.WithCancelCause(ctx)
	late := time.AfterFunc(patience, func() { cancel(errTimedOut) })
	s := &stream{}
	t := &http.Transport{
		Protocols: new(http.Protocols),
		HTTP2:     &http.HTTP2Config{MaxReceiveBufferPerConnection: window, MaxReceiveBufferPerStream: window},
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			var d net.Dialer
			c, err := d.DialContext(ctx, network, address)
			if err == nil {
				s.conn = &answering{Conn: c, answered: func() { late.Stop(); connected() }}
			}
			return s.conn, err
		},
	}
	t.Protocols.SetUnencryptedHTTP2(true)
	body, up := io.Pipe()
	s.up = up
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+slicerv1.SubscriberService_Watch_FullMethodName, body)
	if err != nil {
		return nil, err
	}
	req.Header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}}
	go s.send(&slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Hello{Hello: hello}})
	s.resp, err = t.RoundTrip(req)
	if err != nil {
		s.close()
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, err
	}
	return s, nil
}

// answering is a connection that tells when the server has said something.
type answering struct {
	net.Conn
	answered func()
	once     sync.Once
}

func (c *answering) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.once.Do(c.answered)
	}
	return n, err
}

func (s *stream) close() {
	s.up.CloseWithError(io.ErrClosedPipe)
	if s.conn != nil {
		s.conn.Close()
	}
}

func (s *stream) send(m *slicerv1.WatchRequest) error {
	b, err := proto.MarshalOptions{}.MarshalAppend(make([]byte, 5, 64), m)
	if err != nil {
		return err
	}
	binary.BigEndian.PutUint32(b[1:], uint32(len(b)-5))
	_, err = s.up.Write(b)
	return err
}

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// recv takes one message. The error is why the stream has ended.
func (s *stream) recv() (heard, error) {
	var prefix [5]byte
	if _, err := io.ReadFull(s.resp.Body, prefix[:]); errors.Is(err, io.EOF) {
		return heard{}, s.ended()
	} else if err != nil {
		return heard{}, err
	}
	b := buffers.Get().(*bytes.Buffer)
	defer buffers.Put(b)
	b.Reset()
	if _, err := io.CopyN(b, s.resp.Body, int64(binary.BigEndian.Uint32(prefix[1:]))); err != nil {
		return heard{}, err
	}
	return hear(b.Bytes())
}

// ended is the status that the server has ended the stream with.
func (s *stream) ended() error {
	said := s.resp.Trailer
	if s.resp.Header.Get("Grpc-Status") != "" {
		said = s.resp.Header
	}
	if bin := strings.TrimRight(said.Get("Grpc-Status-Details-Bin"), "="); bin != "" {
		p := status.New(codes.Unknown, "").Proto()
		if b, err := base64.RawStdEncoding.DecodeString(bin); err == nil && proto.Unmarshal(b, p) == nil {
			return status.FromProto(p).Err()
		}
	}
	return fmt.Errorf("the stream has ended with status %s: %s", said.Get("Grpc-Status"), said.Get("Grpc-Message"))
}

// heard is what a subscriber of the crowd makes of a WatchResponse: it counts the
// bytes of a chunk, and decodes a trailer.
type heard struct {
	bytes   uint64
	trailer *slicerv1.Trailer
}

func hear(m []byte) (h heard, err error) {
	err = fields(m, func(num protowire.Number, value []byte) error {
		switch num {
		case 1: // chunk, of which data is the only field
			return fields(value, func(_ protowire.Number, data []byte) error {
				h.bytes += uint64(len(data))
				return nil
			})
		case 2: // trailer
			h.trailer = new(slicerv1.Trailer)
			return proto.Unmarshal(value, h.trailer)
		}
		return nil
	})
	return h, err
}

var errMalformed = errors.New("malformed message")

// fields calls do with each of the fields of a message, which are all of bytes.
func fields(b []byte, do func(protowire.Number, []byte) error) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 || typ != protowire.BytesType {
			return errMalformed
		}
		value, m := protowire.ConsumeBytes(b[n:])
		if m < 0 {
			return errMalformed
		}
		if err := do(num, value); err != nil {
			return err
		}
		b = b[n+m:]
	}
	return nil
}
