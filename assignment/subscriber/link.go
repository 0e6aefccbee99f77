package subscriber

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/slicer-project/slicer/assignment/subscriber/protocol"
	"github.com/slicer-project/slicer/assignment/trace"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// A dead server or network shows within keepaliveTime + keepaliveTimeout, and
// when we have something to say within keepaliveTimeout, which gRPC also sets as
// the TCP user timeout. 10 s is the least that gRPC allows.
const (
	keepaliveTime    = 10 * time.Second
	keepaliveTimeout = 5 * time.Second
)

// window is how much a server may have sent that has not been taken off the stream:
// a whole assignment of 10^5 slices. That it is fixed keeps gRPC from measuring the
// path with a ping for each assignment that comes, which costs both sides about as
// much as the change of an assignment itself.
const window = 1 << 20

// link is one stream on a connection of its own, or on that of another link.
type link struct {
	id     protocol.Link
	cancel context.CancelFunc
	out    outbox
	conn   *connection // set at the latest when it says that it is linked

	// The owner's.
	linked bool
	setUp  trace.Span // until it is linked
	asm    wire.Assembler
}

// connection is closed by the last link that leaves it.
type connection struct {
	*grpc.ClientConn
	links atomic.Int32
}

// join returns the connection for one link more, nil if it is closed. It is called by
// the links' owner only.
func (c *connection) join() *connection {
	if c.links.Add(1) == 1 {
		return nil
	}
	return c
}

func (c *connection) leave() {
	if c.links.Add(-1) == 0 {
		_ = c.Close()
	}
}

// event is what a link says to its owner; exactly one field beside id is set.
type event struct {
	id     protocol.Link
	linked bool
	got    *slicerv1.WatchResponse
	ended  bool
	err    error // why it ended; nil is possible
}

// dialOptions are the same for every link of a subscriber.
func dialOptions(user []grpc.DialOption) []grpc.DialOption {
	opts := []grpc.DialOption{
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}),
		// A name with several addresses: not all connect to the first of them.
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"pick_first":{"shuffleAddressList":true}}]}`),
		grpc.WithDisableServiceConfig(),
		grpc.WithIdleTimeout(0),
		grpc.WithStaticStreamWindowSize(window),
		grpc.WithStaticConnWindowSize(window),
	}
	if len(user) == 0 {
		return append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))
	}
	return append(opts, user...)
}

// run lives until the stream has ended or ctx has, and tells its owner what comes; that
// it has ended is the last. It waits for its sender.
func (l *link) run(ctx context.Context, addr string, opts []grpc.DialOption, owner func(event)) {
	tell := func(e event) {
		e.id = l.id
		owner(e)
	}
	tell(event{ended: true, err: l.converse(ctx, addr, opts, tell)})
}

func (l *link) converse(ctx context.Context, addr string, opts []grpc.DialOption, tell func(event)) error {
	if l.conn == nil {
		conn, err := grpc.NewClient("dns:///"+addr, opts...)
		if err != nil {
			return err
		}
		l.conn = &connection{ClientConn: conn}
		l.conn.links.Store(1)
	}
	defer l.conn.leave()
	ctx, cancel := context.WithCancel(ctx)
	var sender sync.WaitGroup
	defer sender.Wait()
	defer cancel()
	// Waits until the connection stands or has failed.
	stream, err := slicerv1.NewSubscriberServiceClient(l.conn).Watch(ctx)
	if err != nil {
		return err
	}
	tell(event{linked: true})
	sender.Go(func() { l.out.drain(ctx, stream) })
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		tell(event{got: m})
	}
}

// outbox holds what is to be sent: at most one message of each kind, the newest.
type outbox struct {
	wake chan struct{} // of capacity 1

	mu     sync.Mutex
	hello  outgoing
	ack    outgoing
	report outgoing
	bye    bool
}

type outgoing struct {
	msg  *slicerv1.WatchRequest
	made time.Time // of the report in it
}

func newLink(id protocol.Link, cancel context.CancelFunc, parts bool) *link {
	return &link{id: id, cancel: cancel, asm: wire.Assembler{Parts: parts}, out: outbox{wake: make(chan struct{}, 1)}}
}

// put never blocks.
func (o *outbox) put(m outgoing) {
	o.mu.Lock()
	switch m.msg.Message.(type) {
	case *slicerv1.WatchRequest_Hello:
		o.hello = m
	case *slicerv1.WatchRequest_Ack:
		o.ack = m
	case *slicerv1.WatchRequest_Report:
		o.report = m
	}
	o.mu.Unlock()
	o.notify()
}

// goodbye ends the stream after what is still to be sent.
func (o *outbox) goodbye() {
	o.mu.Lock()
	o.bye = true
	o.mu.Unlock()
	o.notify()
}

func (o *outbox) notify() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// next returns what to send now, hello first; bye when that was the last.
func (o *outbox) next() (m outgoing, bye bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, slot := range []*outgoing{&o.hello, &o.ack, &o.report} {
		if slot.msg != nil {
			m, *slot = *slot, outgoing{}
			return m, false
		}
	}
	return m, o.bye
}

// drain sends until ctx ends, the stream fails, or goodbye.
func (o *outbox) drain(ctx context.Context, stream grpc.BidiStreamingClient[slicerv1.WatchRequest, slicerv1.WatchResponse]) {
	for {
		m, bye := o.next()
		switch {
		case bye:
			_ = stream.CloseSend()
			return
		case m.msg != nil:
			// The receiving side learns why a send fails.
			if stream.Send(aged(m, time.Now())) != nil {
				return
			}
			continue
		}
		select {
		case <-o.wake:
		case <-ctx.Done():
			return
		}
	}
}

// aged returns the message with the age of the report in it. Messages are
// shared with other links, so it changes a copy.
func aged(m outgoing, now time.Time) *slicerv1.WatchRequest {
	with := func(r *slicerv1.Report) *slicerv1.Report {
		r = shallow(r)
		r.AgeMs = max(now.Sub(m.made).Milliseconds(), 0)
		return r
	}
	switch x := m.msg.Message.(type) {
	case *slicerv1.WatchRequest_Report:
		return &slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Report{Report: with(x.Report)}}
	case *slicerv1.WatchRequest_Hello:
		if h := x.Hello; h.Report != nil {
			h = shallow(h)
			h.Report = with(h.Report)
			return &slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Hello{Hello: h}}
		}
	}
	return m.msg
}

// shallow copies a message, but not what it refers to.
func shallow[M proto.Message](m M) M {
	out := m.ProtoReflect().New()
	m.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		out.Set(f, v)
		return true
	})
	return out.Interface().(M)
}
