package clerkgrpc

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/subscriber/subscribertest"
	"github.com/slicer-project/slicer/assignment/waittest"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/loadbalance/policy"
	"github.com/slicer-project/slicer/test/examples/greeter/hello"
)

func contains(s, sub string) bool { return strings.Contains(s, sub) }

func TestRPCsGoToOwners(t *testing.T) {
	run(t, Config{}, func(b *bed) {
		tasks := three()
		servers := map[string]*server{}
		for _, task := range tasks {
			servers[task.Name] = b.serve(task)
		}
		b.put(tasks, each...)
		for i, task := range tasks {
			key := keyOf(i, 3)
			b.answers(key, task.Name)
			md := servers[task.Name].newest()
			if got := md.Get(KeyHeader); len(got) != 1 || got[0] != key {
				b.t.Errorf("the key arrives as %q", got)
			}
			if got := md.Get(GenerationHeader); len(got) != 1 || got[0] != "1" {
				b.t.Errorf("the generation arrives as %q", got)
			}
		}
		// And to the new ones when there are.
		b.put(tasks, []uint32{2}, []uint32{0}, []uint32{1})
		b.answers(keyOf(0, 3), "c")
		b.answers(keyOf(1, 3), "a")
		if got := servers["a"].newest().Get(GenerationHeader); len(got) != 1 || got[0] != "2" {
			b.t.Errorf("the generation arrives as %q", got)
		}
	})
}

// TestGenerationTold: a task is told a generation once on a connection, and again now and then.
func TestGenerationTold(t *testing.T) {
	run(t, Config{Keyless: AnyTask}, func(b *bed) {
		tasks := three()[:1]
		s := b.serve(tasks[0])
		put := func() { b.put(tasks, []uint32{0}) }
		put()
		for i, x := range []struct {
			before func()
			key    string
			want   string // of the first two RPCs
		}{
			{func() {}, "k", "1"},
			{put, "k", "2"},
			{put, "", "3"},
			{func() { time.Sleep(DefaultIdleClose/sweeps + time.Second) }, "", "3"},
			{func() { b.kill(tasks[0]); s = b.serve(tasks[0]); time.Sleep(10 * time.Second) }, "k", "3"},
		} {
			x.before()
			ctx := b.t.Context()
			if x.key != "" {
				ctx = clerk.WithKey(ctx, x.key)
			}
			for _, want := range []string{x.want, ""} {
				if _, err := b.ask(ctx); err != nil {
					b.t.Fatal(i, err)
				}
				if got := strings.Join(s.newest().Get(GenerationHeader), ","); got != want {
					b.t.Errorf("%d: the generation arrives as %q, want %q", i, got, want)
				}
			}
		}
	})
}

func TestStreamsGoToOwners(t *testing.T) {
	run(t, Config{}, func(b *bed) {
		tasks := three()
		var last *server
		for _, task := range tasks {
			last = b.serve(task)
		}
		b.put(tasks, each...)
		ctx, cancel := context.WithTimeout(clerk.WithKey(b.t.Context(), keyOf(2, 3)), limit)
		defer cancel()
		if n := receive(b, ctx); n != 3 || last.count() != 1 {
			b.t.Errorf("%d messages, %d streams at the owner", n, last.count())
		}
	})
}

// receive counts what a stream brings.
func receive(b *bed, ctx context.Context) int {
	b.t.Helper()
	s, err := b.stub.SayHellos(ctx, wrapperspb.String("name"))
	if err != nil {
		b.t.Error(err)
		return 0
	}
	for n := 0; ; n++ {
		if _, err := s.Recv(); errors.Is(err, io.EOF) {
			return n
		} else if err != nil {
			b.t.Error(err)
			return n
		}
	}
}

// TestKeyForms: whatever the bytes of a key, the server reads them.
func TestKeyForms(t *testing.T) {
	run(t, Config{}, func(b *bed) {
		tasks := three()[:1]
		s := b.serve(tasks[0])
		b.put(tasks, []uint32{0})
		for _, key := range []string{"", "a key", " a", "a ", "Grüße", "\x00\xff\n", "~", "50%", "50%25", "%zz", strings.Repeat("k", assignment.MaxKeyLen)} {
			b.answers(key, "a")
			md := s.newest()
			if got := append(md.Get(KeyHeader), md.Get(KeyHeader+"-bin")...); len(got) != 1 || got[0] != key {
				b.t.Errorf("%q arrives as %q", key, got)
			}
		}
		_, err := b.ask(clerk.WithKey(b.t.Context(), strings.Repeat("k", assignment.MaxKeyLen+1)))
		b.fails(err, codes.InvalidArgument, `key: "4097 bytes" is not allowed: want at most 4096 bytes`)
	})
}

func TestWhereTheKeyIs(t *testing.T) {
	second := keyOf(1, 3)
	of := func(method string, request any) (string, bool) {
		if method != hello.SayHelloMethod {
			t.Errorf("method %q", method)
		}
		v, ok := request.(*wrapperspb.StringValue)
		return keyOf(2, 3), ok && v.Value == "name"
	}
	run(t, Config{Header: "x-user", Key: of, SendKey: "-"}, func(b *bed) {
		tasks := three()
		var s *server
		for _, task := range tasks {
			s = b.serve(task)
		}
		b.put(tasks, each...)
		header := metadata.AppendToOutgoingContext(b.t.Context(), "x-user", second)
		for _, test := range []struct {
			ctx  context.Context
			want string
		}{
			{clerk.WithKey(header, keyOf(0, 3)), "a"},
			{header, "b"},
			{b.t.Context(), "c"},
		} {
			if got, err := b.ask(test.ctx); got != test.want || err != nil {
				b.t.Errorf("%q answers, %v; want %q", got, err, test.want)
			}
		}
		if md := s.newest(); len(md.Get(KeyHeader)) != 0 || len(md.Get(GenerationHeader)) != 1 {
			b.t.Errorf("metadata %v", md)
		}
	})
}

// TestKeyFields: an RPC whose key is in a field needs no metadata, but for the first on a connection.
func TestKeyFields(t *testing.T) {
	run(t, Config{KeyFields: []string{"absent", "value"}, SendKey: "-"}, func(b *bed) {
		tasks := three()
		servers := map[string]*server{}
		for _, task := range tasks {
			servers[task.Name] = b.serve(task)
		}
		b.put(tasks, each...)
		for i, want := range []string{"a", "b", "c"} {
			for again := range 2 {
				answer, err := b.stub.SayHello(b.t.Context(), wrapperspb.String(keyOf(i, 3)))
				if err != nil || answer.GetValue() != want {
					b.t.Errorf("%v answers, %v; want %q", answer, err, want)
				}
				if md := servers[want].newest(); len(md.Get(KeyHeader)) != 0 || len(md.Get(GenerationHeader)) != 1-again {
					b.t.Errorf("metadata %v", md)
				}
			}
		}
		// One that clerk.WithKey gives comes first.
		if got, err := b.ask(clerk.WithKey(b.t.Context(), keyOf(1, 3))); got != "b" || err != nil {
			b.t.Errorf("%q answers, %v", got, err)
		}
		if md := servers["b"].newest(); len(md.Get(KeyHeader))+len(md.Get(GenerationHeader)) != 0 {
			b.t.Errorf("metadata %v", md)
		}
		_, err := b.stub.SayHello(b.t.Context(), wrapperspb.String(""))
		b.fails(err, codes.InvalidArgument, "SayHello has no key: clerk.WithKey or the fields absent, value gives none")
		_, err = b.stub.SayHellos(b.t.Context(), wrapperspb.String(keyOf(0, 3)))
		b.fails(err, codes.InvalidArgument, "SayHellos has no key")
	})
	run(t, Config{KeyFields: []string{"value"}}, func(b *bed) {
		tasks := three()
		servers := map[string]*server{}
		for _, task := range tasks {
			servers[task.Name] = b.serve(task)
		}
		b.put(tasks, each...)
		if got, err := b.stub.SayHello(b.t.Context(), wrapperspb.String(keyOf(0, 3))); got.GetValue() != "a" || err != nil {
			b.t.Errorf("%v answers, %v", got, err)
		}
		if md := servers["a"].newest(); len(md.Get(KeyHeader)) != 1 || len(md.Get(GenerationHeader)) != 1 {
			b.t.Errorf("metadata %v", md)
		}
	})
}

func TestKeyless(t *testing.T) {
	none := func(string, any) (string, bool) { return "", false }
	run(t, Config{Header: "x-user", Key: none}, func(b *bed) {
		_, err := b.ask(b.t.Context())
		b.fails(err, codes.InvalidArgument, `/hello.Greeter/SayHello has no key: clerk.WithKey or the metadata "x-user" or Config.Key gives none`)
		_, err = b.stub.SayHellos(b.t.Context(), wrapperspb.String(""))
		b.fails(err, codes.InvalidArgument, "SayHellos has no key")
	})
	run(t, Config{Keyless: AnyTask, Policy: policy.RoundRobin}, func(b *bed) {
		tasks := three()
		tasks[2].State = assignment.TaskDraining
		for _, task := range tasks {
			b.serve(task)
		}
		b.put(tasks, each...)
		seen := map[string]int{}
		for range 30 {
			got, err := b.ask(b.t.Context())
			if err != nil {
				b.t.Fatal(err)
			}
			seen[got]++
		}
		// A turn may have been waited out, before there was a connection.
		if seen["a"] < 14 || seen["b"] < 14 {
			b.t.Errorf("not in turns among those that run: %v", seen)
		}
		// One is gone.
		b.kill(tasks[0])
		for range 5 {
			if got, err := b.ask(b.t.Context()); got != "b" || err != nil {
				b.t.Errorf("%q, %v", got, err)
			}
		}
	})
}

func TestWaitsForTheFirstAssignment(t *testing.T) {
	run(t, Config{}, func(b *bed) {
		tasks := three()
		b.serve(tasks[0])
		_, err := b.ask(clerk.WithKey(b.t.Context(), "k"))
		b.fails(err, codes.DeadlineExceeded, `no assignment: job "job"`)
		began := time.Now()
		done := make(chan error)
		go func() {
			_, err := b.ask(clerk.WithKey(b.t.Context(), "k"))
			done <- err
		}()
		time.Sleep(3 * time.Second)
		b.put(tasks[:1], []uint32{0})
		if err := <-done; err != nil || time.Since(began) > 4*time.Second {
			b.t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// gRPC lets a resolver say nothing but UNAVAILABLE.
func TestBadTarget(t *testing.T) {
	cfg := Config{Clerk: clerk.Config{Distributors: []string{"10.0.0.1:1"}}}
	conn, err := grpc.NewClient("slicer:///Job_1", append(DialOptions(cfg), insecureOption)...)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = hello.NewGreeterClient(conn).SayHello(clerk.WithKey(t.Context(), "k"), wrapperspb.String(""))
	(&bed{t: t}).fails(err, codes.Unavailable, `clerkgrpc: target "slicer:///Job_1": job name`)
}

func TestBadConfigs(t *testing.T) {
	good := clerk.Config{Distributors: []string{"10.0.0.1:1"}}
	for field, cfg := range map[string]Config{
		"clerk.distributors":                 {},
		"distributors":                       {Clerk: clerk.Config{Distributors: []string{"10.0.0.1"}}},
		"subset size":                        {Clerk: clerk.Config{Distributors: good.Distributors, Subset: clerk.SubsetConfig{Size: -1}}},
		"shared":                             {Clerk: good, Shared: &clerk.Clerk{}},
		"clerk.job":                          {Clerk: clerk.Config{Job: "j", Distributors: good.Distributors}},
		"header":                             {Clerk: good, Header: "X-User"},
		"send_key":                           {Clerk: good, SendKey: "key-bin"},
		"key_fields":                         {Clerk: good, KeyFields: []string{"user."}},
		"keyless":                            {Clerk: good, Keyless: 7},
		"policy":                             {Clerk: good, Policy: 7},
		"idle_close":                         {Clerk: good, IdleClose: time.Millisecond},
		"service_config":                     {Clerk: good, ServiceConfig: "null"},
		"service_config.loadBalancingConfig": {Clerk: good, ServiceConfig: `{"loadBalancingConfig": []}`},
	} {
		err := cfg.Validate()
		var bad *assignment.FieldError
		if !errors.As(err, &bad) || bad.Field != field {
			t.Errorf("%s: %v", field, err)
		}
		conn, err := grpc.NewClient("slicer:///job", append(DialOptions(cfg), insecureOption)...)
		if err != nil {
			t.Fatal(err)
		}
		_, err = hello.NewGreeterClient(conn).SayHello(clerk.WithKey(t.Context(), "k"), wrapperspb.String(""))
		(&bed{t: t}).fails(err, codes.FailedPrecondition, field)
		conn.Close()
	}
	if err := (Config{Clerk: good, Header: "x-user", SendKey: "-", ServiceConfig: `{"methodConfig": []}`, Policy: policy.Weighted}).Validate(); err != nil {
		t.Error(err)
	}
	// What the clerk or the target do not allow shows at the first RPC.
	for target, cfg := range map[string]clerk.Config{
		"slicer:///NoName": good,
		"slicer:///job":    {Distributors: good.Distributors, ClientID: "a b"},
	} {
		conn, err := grpc.NewClient(target, append(DialOptions(Config{Clerk: cfg}), insecureOption)...)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(clerk.WithKey(t.Context(), "k"), waittest.Patience)
		if _, err = hello.NewGreeterClient(conn).SayHello(ctx, wrapperspb.String("")); err == nil || ctx.Err() != nil {
			t.Errorf("%s: %v", target, err)
		}
		cancel()
		conn.Close()
	}
}

// TestOneClerk: connections of one call's options share a clerk, which ends with
// the last.
func TestOneClerk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := prometheus.NewRegistry()
		b := &bed{t: t, servers: map[string]*server{}, hang: map[string]bool{}, dials: map[string]int{}}
		b.net = subscribertest.NewNetwork()
		b.plane = b.net.Start(distributor)
		defer b.plane.Stop()
		tasks := three()[:1]
		defer b.serve(tasks[0]).stop()
		opts := DialOptions(Config{Clerk: clerk.Config{Distributors: []string{distributor}, DialOptions: b.net.DialOptions(), Registerer: r}})
		first, second := b.dialWith(opts...), b.dialWith(opts...)
		b.put(tasks, []uint32{0})
		for _, conn := range []*grpc.ClientConn{first, second} {
			b.stub = hello.NewGreeterClient(conn)
			b.answers("k", "a")
		}
		hellos := 0
		for _, m := range b.plane.Heard() {
			if m.GetHello() != nil {
				hellos++
			}
		}
		if hellos != 1 {
			t.Errorf("%d subscriptions", hellos)
		}
		if families, err := r.Gather(); err != nil || len(families) == 0 {
			t.Errorf("%d metrics, %v", len(families), err)
		}
		first.Close()
		synctest.Wait()
		b.answers("k", "a")
		second.Close()
		synctest.Wait()
		if families, err := r.Gather(); err != nil || len(families) != 0 {
			t.Errorf("%d metrics are left, %v", len(families), err)
		}
	})
}
