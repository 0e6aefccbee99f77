package rpc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"runtime/metrics"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	_ "google.golang.org/grpc/balancer/ringhash"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/cputest"
	"github.com/slicer-project/slicer/assignment/httpkey"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/clerkgrpc"
	"github.com/slicer-project/slicer/clerk/clerkhttp"
	"github.com/slicer-project/slicer/clerk/front"
	"github.com/slicer-project/slicer/loadbalance/policy"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/slicelet/sliceletgrpc"
	"github.com/slicer-project/slicer/slicelet/slicelethttp"
)

const (
	roleEnv = "SLICER_BENCH_RPC" // role, Distributor and what else it needs
	// profilesEnv is a directory for a CPU profile of each process, which go with -kind.
	profilesEnv = "SLICER_BENCH_PROFILES"
	tasks       = 4
	keys        = 1 << 12
	generation  = "1760000000000"  // as long as they are
	limit       = 10 * time.Second // of a request
	// As those of clerkgrpc and sliceletgrpc.
	streamWindow, connectionWindow = 1 << 20, 16 << 20
	// The jobs, and whether their servers are ours.
	rpcJob, webJob, plainJob = "rpc", "web", "plain"
)

// A process with a role in its environment is that and nothing else.
func init() {
	role := strings.Fields(os.Getenv(roleEnv))
	if len(role) == 0 {
		return
	}
	if dir := os.Getenv(profilesEnv); dir != "" {
		out, err := os.Create(filepath.Join(dir, role[0]+".pprof"))
		if err == nil {
			err = pprof.StartCPUProfile(out)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	err := map[string]func([]string) error{"server": serve, "client": call, "proxy": proxy}[role[0]](role[1:])
	pprof.StopCPUProfile()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// objects is how many this process has allocated.
func objects() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:objects"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// answer answers lines of input until it ends: "used" by the CPU time and the objects of this
// process, others by f.
func answer(f func(fields []string) (string, error)) error {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		if in.Text() == "used" {
			fmt.Println(int64(cputest.Own()), objects())
			continue
		}
		out, err := f(strings.Fields(in.Text()))
		if err != nil {
			return err
		}
		fmt.Println(out)
	}
	return nil
}

func listen() (net.Listener, string, error) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", err
	}
	return lis, lis.Addr().String(), nil
}

// serve is the process of the servers: of each kind as many as there are tasks. The servers of
// plainJob have no part of ours but that a slicelet beside them reports that they are there.
func serve(args []string) error {
	distributor := args[0]
	var addrs [5][]string // gRPC plain and ours, HTTP plain and ours, gRPC with windows that do not change
	open := func(i int) (net.Listener, string, error) {
		lis, addr, err := listen()
		addrs[i] = append(addrs[i], addr)
		return lis, addr, err
	}
	task := func(job, addr string, i int) (*slicelet.Slicelet, error) {
		return slicelet.New(slicelet.Config{Job: job, Task: fmt.Sprintf("%s-%d", job, i), Address: addr, Distributors: []string{distributor}})
	}
	serveGRPC := func(lis net.Listener, opts ...grpc.ServerOption) {
		s := grpc.NewServer(opts...)
		s.RegisterService(&echoService, echoServer{})
		go func() { _ = s.Serve(lis) }()
	}
	serveHTTP := func(lis net.Listener, h http.Handler) { go func() { _ = (&http.Server{Handler: h}).Serve(lis) }() }
	body := []byte(strings.Repeat("x", 100))
	web := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(body) })
	for i := range tasks {
		lis, _, err := open(0)
		if err != nil {
			return err
		}
		serveGRPC(lis)
		if lis, _, err = open(4); err != nil {
			return err
		}
		serveGRPC(lis, grpc.StaticStreamWindowSize(streamWindow), grpc.StaticConnWindowSize(connectionWindow))
		lis, addr, err := open(1)
		if err != nil {
			return err
		}
		s, err := task(rpcJob, addr, i)
		if err != nil {
			return err
		}
		serveGRPC(lis, sliceletgrpc.ServerOptions(s, sliceletgrpc.Config{KeyFields: []string{keyField}})...)
		if lis, addr, err = open(2); err != nil {
			return err
		}
		serveHTTP(lis, web)
		if _, err = task(plainJob, addr, i); err != nil {
			return err
		}
		if lis, addr, err = open(3); err != nil {
			return err
		}
		if s, err = task(webJob, addr, i); err != nil {
			return err
		}
		h, err := slicelethttp.Handler(s, web, slicelethttp.Config{})
		if err != nil {
			return err
		}
		serveHTTP(lis, h)
	}
	var all []string
	for _, a := range addrs {
		all = append(all, strings.Join(a, ","))
	}
	fmt.Println(strings.Join(all, " "))
	return answer(func([]string) (string, error) { return "", errors.New("what?") })
}

// clerkOf waits until all tasks own something.
func clerkOf(job, distributor string) (*clerk.Clerk, error) {
	ck, err := clerk.New(clerk.Config{Job: job, Distributors: []string{distributor}})
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if a := ck.Assignment(); a != nil && a.NumTasks() == tasks {
			owning := map[int]bool{}
			for _, of := range a.All() {
				owning[of.Position(0)] = true
			}
			if len(owning) == tasks {
				return ck, nil
			}
		}
	}
	return nil, fmt.Errorf("the tasks of job %q do not own slices", job)
}

// caller sends one request with the key.
type caller func(key string) error

// call is the process of the client.
func call(args []string) error {
	distributor, addrs := args[0], args[1:]
	kinds := map[string]func(size int) caller{}
	conn := func(target string, opts ...grpc.DialOption) (*grpc.ClientConn, error) {
		return grpc.NewClient(target, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	}
	servers := func(addrs string) grpc.DialOption {
		plain := manual.NewBuilderWithScheme("plain")
		var at resolver.State
		for _, a := range strings.Split(addrs, ",") {
			at.Endpoints = append(at.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{{Addr: a}}})
		}
		plain.InitialState(at)
		return grpc.WithResolvers(plain)
	}
	plain := servers(addrs[0])
	rpc, err := clerkOf(rpcJob, distributor)
	if err != nil {
		return err
	}
	byHand := func(ctx context.Context, key string) context.Context {
		return metadata.AppendToOutgoingContext(ctx, "slicer-key", key)
	}
	withGeneration := func(ctx context.Context, key string) context.Context {
		return metadata.AppendToOutgoingContext(ctx, "slicer-key", key, "slicer-generation", generation)
	}
	asIs := func(ctx context.Context, _ string) context.Context { return ctx }
	lb := func(config string) grpc.DialOption {
		return grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[` + config + `]}`)
	}
	for name, k := range map[string]struct {
		target string
		with   func(context.Context, string) context.Context
		opts   []grpc.DialOption
	}{
		"round_robin":     {"plain:///", asIs, []grpc.DialOption{plain, lb(`{"round_robin":{}}`)}},
		"header_by_hand":  {"plain:///", byHand, []grpc.DialOption{plain, lb(`{"round_robin":{}}`)}},
		"headers_by_hand": {"plain:///", withGeneration, []grpc.DialOption{plain, lb(`{"round_robin":{}}`)}},
		"header_and_windows": {"plain:///", byHand, []grpc.DialOption{servers(addrs[4]), lb(`{"round_robin":{}}`),
			grpc.WithStaticStreamWindowSize(streamWindow), grpc.WithStaticConnWindowSize(connectionWindow)}},
		"ring_hash":         {"plain:///", byHand, []grpc.DialOption{plain, lb(`{"ring_hash_experimental":{"requestHashHeader":"slicer-key"}}`)}},
		"slicer":            {"slicer:///" + rpcJob, clerk.WithKey, clerkgrpc.DialOptions(clerkgrpc.Config{Shared: rpc})},
		"slicer_in_request": {"slicer:///" + rpcJob, asIs, clerkgrpc.DialOptions(clerkgrpc.Config{Shared: rpc, SendKey: "-", KeyFields: []string{keyField}})},
	} {
		cc, err := conn(k.target, k.opts...)
		if err != nil {
			return err
		}
		kinds["unary/"+name] = func(size int) caller { return unary(cc, k.with, size) }
		if name != "slicer_in_request" { // of which streams have no request to look at
			kinds["stream/"+name] = func(size int) caller { return stream(cc, k.with, size) }
		}
	}
	webs := strings.Split(addrs[2], ",")
	// As ours, by key: requests that go to servers in turn need fewer connections.
	web := func(key string) string { return webs[assignment.KeyOf(key)%tasks] }
	kinds["http/net_http"] = get(&http.Client{Transport: clerkhttp.DefaultBase()}, web)
	kinds["http/headers_by_hand"] = get(&http.Client{Transport: sender{base: clerkhttp.DefaultBase()}}, web)
	kinds["http/headers_and_context"] = get(&http.Client{Transport: sender{base: ender{clerkhttp.DefaultBase()}}}, web)
	kinds["http/one_header_and_context"] = get(&http.Client{Transport: sender{base: ender{clerkhttp.DefaultBase()}, one: true}}, web)
	for name, job := range map[string]string{"http/clerkhttp": plainJob, "http/clerkhttp+slicelethttp": webJob} {
		ck, err := clerkOf(job, distributor)
		if err != nil {
			return err
		}
		t, err := clerkhttp.NewTransport(clerkhttp.Config{Clerk: ck})
		if err != nil {
			return err
		}
		kinds[name] = get(&http.Client{Transport: t}, func(string) string { return "any" })
	}
	fmt.Println("ready")
	all := make([]string, keys)
	for i := range all {
		all[i] = fmt.Sprintf("user/%d", i)
	}
	return answer(func(f []string) (string, error) { // kind, requests, at a time, bytes
		k := kinds[f[0]]
		if _, at, ok := strings.Cut(f[0], "@"); ok && k == nil { // a proxy
			k = get(&http.Client{Transport: clerkhttp.DefaultBase()}, func(string) string { return at })
			kinds[f[0]] = k
		}
		if k == nil {
			return "", fmt.Errorf("no kind %q", f[0])
		}
		var n [3]int
		for i := range n {
			var err error
			if n[i], err = strconv.Atoi(f[1+i]); err != nil {
				return "", err
			}
		}
		one := k(n[2])
		var failed atomic.Pointer[error]
		var wg sync.WaitGroup
		had, before, began := objects(), cputest.Own(), time.Now()
		for w := range n[1] {
			wg.Go(func() {
				for i := w; i < n[0]; i += n[1] {
					if err := one(all[i%keys]); err != nil {
						failed.Store(&err)
						return
					}
				}
			})
		}
		wg.Wait()
		used, took := cputest.Own()-before, time.Since(began)
		if err := failed.Load(); err != nil {
			return "", fmt.Errorf("%s: %w", f[0], *err)
		}
		return fmt.Sprintf("%d %d %d", used, took, objects()-had), nil
	})
}

func message(key string, payload []byte) *anypb.Any { return &anypb.Any{TypeUrl: key, Value: payload} }

func unary(cc *grpc.ClientConn, with func(context.Context, string) context.Context, size int) caller {
	payload := make([]byte, size)
	return func(key string) error {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		return cc.Invoke(with(ctx, key), unaryMethod, message(key, payload), new(anypb.Any))
	}
}

func stream(cc *grpc.ClientConn, with func(context.Context, string) context.Context, size int) caller {
	payload := make([]byte, size)
	return func(key string) error {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		s, err := cc.NewStream(with(ctx, key), &echoService.Streams[0], streamMethod)
		if err != nil {
			return err
		}
		if err = errors.Join(s.SendMsg(message(key, payload)), s.CloseSend()); err != nil {
			return err
		}
		if err = s.RecvMsg(new(anypb.Any)); err != nil {
			return err
		}
		if err = s.RecvMsg(new(anypb.Any)); err != io.EOF {
			return fmt.Errorf("not the end: %w", err)
		}
		return nil
	}
}

// sender adds headers like those of clerkhttp, as many and as long, or the same in one, as a
// RoundTripper has to: to a copy of the request.
type sender struct {
	base http.RoundTripper
	one  bool
}

func (s sender) RoundTrip(r *http.Request) (*http.Response, error) {
	key, _ := clerk.KeyOf(r.Context())
	by, _ := r.Context().Deadline()
	out := *r
	out.Header = maps.Clone(r.Header)
	timeout := strconv.FormatInt(time.Until(by).Milliseconds(), 10)
	if s.one {
		out.Header["Header-Key"] = []string{generation + ";" + timeout + ";" + key}
	} else {
		out.Header["Header-Key"] = []string{key}
		out.Header["Header-Generation"] = []string{generation}
		out.Header["Header-Timeout"] = []string{timeout}
	}
	return s.base.RoundTrip(&out)
}

// ender gives a request a context that can be ended before the request's own.
type ender struct{ base http.RoundTripper }

func (e ender) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	resp, err := e.base.RoundTrip(r.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	resp.Body = ended{resp.Body, cancel}
	return resp, nil
}

// ended is a body at whose end a context ends.
type ended struct {
	io.ReadCloser
	cancel func()
}

func (e ended) Close() error {
	defer e.cancel()
	return e.ReadCloser.Close()
}

// get sends requests as a program would: with a deadline, and a key.
func get(c *http.Client, host func(key string) string) func(int) caller {
	return func(int) caller {
		return func(key string) error {
			ctx, cancel := context.WithTimeout(context.Background(), limit)
			defer cancel()
			ctx = clerk.WithKey(ctx, key)
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host(key)+"/users/x", nil)
			if err != nil {
				return err
			}
			req.Header.Set("X-User", key)
			resp, err := c.Do(req)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			if _, err = io.Copy(io.Discard, resp.Body); err == nil && resp.StatusCode != http.StatusOK {
				err = errors.New(resp.Status)
			}
			return err
		}
	}
}

// proxy is the process of three proxies: httputil's own, which finds the server by the key's hash,
// without and with a pool of buffers, and ours. It prints their addresses.
func proxy(args []string) error {
	distributor, webs := args[0], strings.Split(args[1], ",")
	defer func(b []byte) { _ = b[0] }(make([]byte, 32<<20)) // as slicerproxy has, for all
	var pool front.Buffers
	plain := func(pool httputil.BufferPool) *httputil.ReverseProxy {
		base := clerkhttp.DefaultBase()
		base.DisableCompression = true
		return &httputil.ReverseProxy{
			Rewrite: func(pr *httputil.ProxyRequest) {
				pr.SetURL(&url.URL{Scheme: "http", Host: webs[assignment.KeyOf(pr.In.Header.Get("X-User"))%tasks]})
				pr.SetXForwarded()
			},
			Transport: base, BufferPool: pool,
		}
	}
	ours, err := clerkhttp.NewProxy(clerkhttp.ProxyConfig{
		Rules:  clerkhttp.Rules{List: []clerkhttp.Rule{{Path: "/users/", Job: plainJob, Key: []httpkey.Source{httpkey.Header("X-User")}}}},
		Policy: policy.WeightedLeastLoaded,
		Clerk:  func(job string) (*clerk.Clerk, error) { return clerkOf(job, distributor) },
	})
	if err != nil {
		return err
	}
	var addrs []string
	for _, h := range []http.Handler{plain(nil), plain(&pool), ours} {
		lis, addr, err := listen()
		if err != nil {
			return err
		}
		addrs = append(addrs, addr)
		go func() { _ = (&http.Server{Handler: h}).Serve(lis) }()
	}
	fmt.Println(strings.Join(addrs, " "))
	return answer(func([]string) (string, error) { return "", errors.New("what?") })
}
