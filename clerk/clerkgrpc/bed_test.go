package clerkgrpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/subscriber/subscribertest"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/loadbalance/overload"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"github.com/slicer-project/slicer/test/examples/greeter/hello"
)

const (
	distributor = "10.255.0.1:1"
	jobName     = "job"
)

// bed is a control plane that says what it is told to, the servers of a job, and
// a client, all on a network in memory and in a bubble of virtual time.
type bed struct {
	t     *testing.T
	net   *subscribertest.Network
	plane *subscribertest.Server
	conn  *grpc.ClientConn
	stub  hello.GreeterClient
	last  *assignment.Assignment

	health *health.Server // of servers started from now on; may be nil

	mu      sync.Mutex
	servers map[string]*server // by address
	hang    map[string]bool
	dials   map[string]int
}

// server is a task. It answers with its name.
type server struct {
	hello.Greeter
	name     string
	grpc     *grpc.Server
	done     chan struct{}
	mu       sync.Mutex
	heard    []metadata.MD
	refuse   int            // so many RPCs are refused
	refuseAs string         // the job that it refuses in the name of, if not its own
	lose     int            // so many RPCs are carried out, and their answers held back
	full     int            // so many RPCs it has no room for, another task may
	noRetry  bool           // nor may another
	draining bool           // it says that it drains
	level    string         // what it says in trailers
	levelOf  overload.Level // what refusals say
	block    chan struct{}
	stock    func() bool // reports whether a server that is not Slicer's has room
}

func run(t *testing.T, cfg Config, test func(b *bed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bed{
			t: t, net: subscribertest.NewNetwork(), servers: map[string]*server{}, hang: map[string]bool{}, dials: map[string]int{},
		}
		b.plane = b.net.Start(distributor)
		b.conn = b.dial(cfg)
		b.stub = hello.NewGreeterClient(b.conn)
		defer func() {
			b.conn.Close()
			for _, s := range b.servers {
				s.stop()
			}
			synctest.Wait()
			b.plane.Stop()
		}()
		test(b)
	})
}

// dial makes a connection to the job.
func (b *bed) dial(cfg Config, more ...grpc.DialOption) *grpc.ClientConn {
	if cfg.Shared == nil {
		cfg.Clerk.Distributors = []string{distributor}
		cfg.Clerk.DialOptions = b.net.DialOptions()
	}
	return b.dialWith(append(DialOptions(cfg), more...)...)
}

func (b *bed) dialWith(opts ...grpc.DialOption) *grpc.ClientConn {
	conn, err := grpc.NewClient("slicer:///"+jobName, append(opts,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(b.reach))...)
	if err != nil {
		b.t.Fatal(err)
	}
	return conn
}

func (b *bed) reach(ctx context.Context, addr string) (net.Conn, error) {
	b.mu.Lock()
	s, hang := b.servers[addr], b.hang[addr]
	b.dials[addr]++
	b.mu.Unlock()
	if hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if s == nil {
		return nil, errors.New("connection refused")
	}
	return s.listener().DialContext(ctx)
}

var listeners sync.Map // *server to *bufconn.Listener

func (s *server) listener() *bufconn.Listener {
	l, _ := listeners.Load(s)
	return l.(*bufconn.Listener)
}

// serve starts a task at its address.
func (b *bed) serve(t assignment.Task, opts ...grpc.ServerOption) *server {
	s := &server{name: t.Name, done: make(chan struct{})}
	l := bufconn.Listen(1 << 16)
	listeners.Store(s, l)
	s.grpc = grpc.NewServer(append(opts, grpc.ChainUnaryInterceptor(s.unary), grpc.ChainStreamInterceptor(s.streaming))...)
	hello.RegisterGreeterServer(s.grpc, s)
	if b.health != nil {
		healthv1.RegisterHealthServer(s.grpc, b.health)
	}
	go func() {
		defer close(s.done)
		_ = s.grpc.Serve(l)
	}()
	b.mu.Lock()
	b.servers[t.Address] = s
	b.mu.Unlock()
	return s
}

func (s *server) stop() {
	s.grpc.Stop()
	<-s.done
	listeners.Delete(s)
}

// kill ends a task without a word.
func (b *bed) kill(t assignment.Task) {
	b.mu.Lock()
	s := b.servers[t.Address]
	delete(b.servers, t.Address)
	b.mu.Unlock()
	s.stop()
	synctest.Wait()
}

func (s *server) hear(ctx context.Context) error {
	md, _ := metadata.FromIncomingContext(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = append(s.heard, md)
	if s.draining {
		_ = grpc.SetTrailer(ctx, metadata.Pairs(DrainingHeader, "1"))
	}
	if s.level != "" {
		_ = grpc.SetTrailer(ctx, metadata.Pairs(LevelHeader, s.level))
	}
	if s.stock != nil && !s.stock() {
		return status.Error(codes.ResourceExhausted, "no room")
	}
	if s.full > 0 {
		s.full--
		return clerk.Overloaded{Job: cmp.Or(s.refuseAs, jobName), Task: s.name, Elsewhere: !s.noRetry, Level: s.levelOf}
	}
	if s.refuse == 0 {
		return nil
	}
	s.refuse--
	st, err := status.New(codes.Unavailable, "not mine").WithDetails(&slicerv1.Refusal{Job: cmp.Or(s.refuseAs, jobName), Task: s.name, Generation: 1})
	if err != nil {
		return err
	}
	return st.Err()
}

func (s *server) unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if err := s.hear(ctx); err != nil {
		return nil, err
	}
	answer, err := handle(ctx, req)
	if s.loses() {
		return nil, clerk.Lost{Job: jobName, Task: s.name, Generation: 1}
	}
	return answer, err
}

func (s *server) loses() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lose--
	return s.lose >= 0
}

func (s *server) streaming(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	if err := s.hear(ss.Context()); err != nil {
		return err
	}
	if s.loses() {
		return clerk.Lost{Job: jobName, Task: s.name, Generation: 1}
	}
	return handle(srv, ss)
}

func (s *server) SayHello(ctx context.Context, _ *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
	s.mu.Lock()
	block := s.block
	s.mu.Unlock()
	if block != nil {
		<-block
	}
	return wrapperspb.String(s.name), nil
}

// blocks holds RPCs back until the channel is closed.
func (s *server) blocks(until chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.block = until
}

func (s *server) newest() metadata.MD {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.heard[len(s.heard)-1]
}

func (s *server) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.heard)
}

// put has the control plane give slices of equal width to tasks, by position.
func (b *bed) put(tasks []assignment.Task, owners ...[]uint32) {
	b.t.Helper()
	p := assignment.Placement{}
	for i, start := range assignment.Equal(len(owners)) {
		p.Add(start, owners[i]...)
	}
	h := assignment.Header{Job: jobName, StoreID: 1, Generation: 1}
	if b.last != nil {
		h.Generation = b.last.Generation() + 1
	}
	a, err := assignment.Successor(b.last, h, tasks, p)
	if err != nil {
		b.t.Fatal(err)
	}
	b.last = a
	b.plane.Put(a)
	if b.conn != nil {
		b.conn.Connect() // as the first RPC would
	}
	synctest.Wait()
}

func (b *bed) mode(m slicerv1.Mode) {
	b.plane.Say(&slicerv1.Status{TakesReports: true, Mode: m})
}

// three tasks that run.
// serveThree starts the servers of three tasks.
func (b *bed) serveThree() ([]assignment.Task, []*server) {
	tasks := three()
	servers := make([]*server, len(tasks))
	for i, task := range tasks {
		servers[i] = b.serve(task)
	}
	return tasks, servers
}

func three() []assignment.Task {
	all := make([]assignment.Task, 3)
	for i := range all {
		all[i] = subscribertest.Task(string(rune('a'+i)), uint32(i))
		all[i].Address = fmt.Sprintf("10.0.0.%d:80", i+1)
	}
	return all
}

var each = [][]uint32{{0}, {1}, {2}}

// keyOf finds a key whose slice is the i-th of n of equal width.
func keyOf(i, n int) string {
	for j := 0; ; j++ {
		key := fmt.Sprintf("key-%d", j)
		if uint64(assignment.KeyOf(key))/(uint64(assignment.KeyspaceEnd)/uint64(n)) == uint64(i) {
			return key
		}
	}
}

const limit = 10 * time.Second

func (b *bed) ask(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	answer, err := b.stub.SayHello(ctx, wrapperspb.String("name"))
	return answer.GetValue(), err
}

// answers asks for a key and wants an answer from a task.
func (b *bed) answers(key, want string) {
	b.t.Helper()
	if got, err := b.ask(clerk.WithKey(b.t.Context(), key)); err != nil || got != want {
		b.t.Errorf("%s is answered by %q, %v; want %q", key, got, err, want)
	}
}

func (b *bed) fails(err error, code codes.Code, text string) {
	b.t.Helper()
	if status.Code(err) != code || err == nil || !contains(err.Error(), text) {
		b.t.Errorf("error %v, want %s and %q", err, code, text)
	}
}

var insecureOption = grpc.WithTransportCredentials(insecure.NewCredentials())
