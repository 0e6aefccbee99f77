package proxyd_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/cmd/internal/run"
	"github.com/slicer-project/slicer/cmd/internal/run/runtest"
	"github.com/slicer-project/slicer/loadbalance/overload"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/slicelet/sliceletgrpc"
	"github.com/slicer-project/slicer/test/examples/greeter/hello"
	"github.com/slicer-project/slicer/test/kit/bed"
)

// greeter is a task that says what it knows of an RPC. For "fail" it fails, and for "slow"
// it takes its time.
type greeter struct {
	hello.Greeter
	inside, release chan struct{}
}

func (g greeter) SayHello(ctx context.Context, name *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
	switch name.GetValue() {
	case "fail":
		st, err := status.New(codes.NotFound, "nobody").WithDetails(name)
		if err != nil {
			return nil, err
		}
		return nil, st.Err()
	case "slow":
		close(g.inside)
		<-g.release
	}
	h, ok := sliceletgrpc.HandleFrom(ctx)
	l := overload.LabelsOf(ctx)
	return wrapperspb.String(fmt.Sprintf("%s %v %v %s %s", g.From, ok, h.Owned(), l.Criticality, l.Customer)), nil
}

// startGreeter serves gRPC as a task of job greeter until the test ends.
func startGreeter(t *testing.T, g greeter, distributors []string, creds credentials.TransportCredentials, dial ...grpc.DialOption) {
	t.Helper()
	lis := bed.Listen(t)
	s, err := slicelet.New(slicelet.Config{
		Job: "greeter", Task: g.From, Address: lis.Addr().String(), Distributors: distributors, Customer: slicelet.BelieveCustomer, DialOptions: dial,
	})
	if err != nil {
		t.Fatal(err)
	}
	bed.Serve(t, lis, func(r grpc.ServiceRegistrar) {
		hello.RegisterGreeterServer(r, g)
		healthv1.RegisterHealthServer(r, health.NewServer())
		reflection.RegisterV1(r.(reflection.GRPCServer))
	}, s.Close, append(sliceletgrpc.ServerOptions(s, sliceletgrpc.Config{}), grpc.Creds(creds))...)
}

const greeterRules = `
rules:
- path: /hello.Greeter/SayHello
  job: greeter
  key: {header: x-user}
  missing: refuse
  customer: {header: x-team}
  default_customer: nightly
- {path: /hello.Greeter/, job: greeter, key: {header: x-user}}
- {path: /grpc.health.v1.Health/, job: greeter}
- {path: /grpc.reflection.v1.ServerReflection/, job: greeter}
`

func ofUser(ctx context.Context, key string, more ...string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, append([]string{"x-user", key}, more...)...)
}

func stub(t *testing.T, addr string, creds credentials.TransportCredentials) (*grpc.ClientConn, hello.GreeterClient) {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn, hello.NewGreeterClient(conn)
}

// TestGRPC runs slicerproxy --grpc as a process before two greeters of a real control
// plane.
func TestGRPC(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	plane := bed.Start(t, bed.Config{})
	if err := plane.PutJob(ctx, assignment.JobConfig{Name: "greeter"}); err != nil {
		t.Fatal(err)
	}
	inside, release := make(chan struct{}), make(chan struct{})
	for i := range 2 {
		startGreeter(t, greeter{hello.Greeter{From: fmt.Sprint("greeter-", i)}, inside, release}, plane.Addrs(), insecure.NewCredentials())
	}
	ck, err := clerk.New(clerk.Config{Job: "greeter", Distributors: plane.Addrs()})
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	owned(t, ck, 2)
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, rules, greeterRules)
	p := runtest.Start(t, "slicerproxy", "--grpc", "--config="+rules, "--distributors="+strings.Join(plane.Addrs(), ","), "--max-message=65536",
		"--listen=127.0.0.1:0", "--http=127.0.0.1:0")
	w := p.Where()
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	client := &http.Client{Transport: tr, Timeout: limit}
	eventually(t, "ready", func() bool { code, _ := ask(client, "http://"+w["http"]+"/readyz"); return code == 200 })
	conn, greeter := stub(t, w["listen"], insecure.NewCredentials())

	for i := range 20 {
		key := fmt.Sprint("user ", i)
		customer, more := "nightly", []string{"slicer-customer", "forged", "slicer-criticality", "critical_plus", "slicer-key", "other"}
		if i%2 == 0 {
			customer, more = "mail", append(more, "x-team", "mail")
		}
		got, err := greeter.SayHello(ofUser(ctx, key, more...), wrapperspb.String("n"))
		if want := ck.Lookup(key).At(0).Name + " true true sheddable_plus " + customer; err != nil || got.GetValue() != want {
			t.Errorf("%s: %q, %v, want %q", key, got.GetValue(), err, want)
		}
	}
	_, err = greeter.SayHello(ofUser(ctx, "anna"), wrapperspb.String("fail"))
	if st := status.Convert(err); st.Code() != codes.NotFound || st.Message() != "nobody" || fmt.Sprint(st.Details()) != fmt.Sprint([]any{wrapperspb.String("fail")}) {
		t.Errorf("an error of the task's: %v, %v", err, st.Details())
	}
	if _, err = greeter.SayHello(ctx, wrapperspb.String("n")); status.Code(err) != codes.InvalidArgument {
		t.Errorf("without a key: %v", err)
	}
	if _, err = greeter.SayHello(ofUser(ctx, "anna"), wrapperspb.String(strings.Repeat("x", 65536))); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a message that is too large: %v", err)
	}
	hellos, err := greeter.SayHellos(ofUser(ctx, "anna"), wrapperspb.String("you"))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for ; ; n++ {
		if m, err := hellos.Recv(); errors.Is(err, io.EOF) {
			break
		} else if err != nil || m.GetValue() != "hello you" {
			t.Fatal(m, err)
		}
	}
	if n != 3 {
		t.Errorf("%d hellos", n)
	}
	if got, err := healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{}); err != nil || got.GetStatus() != healthv1.HealthCheckResponse_SERVING {
		t.Errorf("health: %v, %v", got, err)
	}
	info, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := info.Send(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	if got, err := info.Recv(); err != nil || !strings.Contains(got.String(), "hello.Greeter") {
		t.Errorf("reflection: %v, %v", got, err)
	}
	if err := info.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := info.Recv(); !errors.Is(err, io.EOF) {
		t.Error(err)
	}

	metric := func(line string) func() bool {
		return func() bool {
			_, body := ask(client, "http://"+w["http"]+"/metrics")
			return strings.Contains(body, line)
		}
	}
	eventually(t, "RPCs are counted", metric(`slicer_proxy_requests_total{job="greeter",result="OK"} 23`))
	write(t, rules, "rules:\n- {job: greeter, upstream: h2c}\n")
	p.Signal(syscall.SIGHUP)
	eventually(t, "rules of HTTP are refused", metric(`slicer_proxy_reloads_total{result="refused"} 1`))
	write(t, rules, "rules:\n- {job: greeter, key: {header: x-other}, criticality: critical}\n")
	p.Signal(syscall.SIGHUP)
	eventually(t, "others are in force", metric(`slicer_proxy_reloads_total{result="loaded"} 1`))
	answer := make(chan string)
	go func() {
		got, err := greeter.SayHello(metadata.AppendToOutgoingContext(ctx, "x-other", "anna"), wrapperspb.String("slow"))
		answer <- fmt.Sprint(got.GetValue(), err)
	}()
	<-inside
	p.Signal(syscall.SIGTERM)
	eventually(t, "it takes no more clients", func() bool {
		code, _ := ask(&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, "http://"+w["listen"])
		return code == 0
	})
	close(release)
	if got, want := <-answer, ck.Lookup("anna").At(0).Name+" true true critical <nil>"; got != want {
		t.Errorf("the RPC on its way: %s, want %s", got, want)
	}
	if code := p.End(); code != 0 {
		t.Errorf("exit %d\n%s", code, p.Text())
	}
}

// TestGRPCTLS: the proxy speaks TLS with its clients, which show no certificate, with
// Distributors and with tasks, whose certificates are for their addresses.
func TestGRPCTLS(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	authority := runtest.NewAuthority(t, "ours")
	plane := bed.Start(t, bed.Config{})
	if err := plane.PutJob(ctx, assignment.JobConfig{Name: "greeter"}); err != nil {
		t.Fatal(err)
	}
	distributors := []string{tlsDistributor(t, plane, certificate(authority, "distributor"))}
	task := source(t, certificate(authority, "task"))
	serving := task.Server(tls.RequireAndVerifyClientCert)
	startGreeter(t, greeter{Greeter: hello.Greeter{From: "greeter-0"}}, distributors, serving, task.DialOptions()...)
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, rules, greeterRules)
	shown := certificate(authority, "proxy")
	p := runtest.Start(t, "slicerproxy", "--grpc", "--config="+rules, "--distributors="+distributors[0], "--listen=127.0.0.1:0", "--http=",
		"--tls-cert="+shown.Cert, "--tls-key="+shown.Key, "--tls-ca="+shown.CA)
	_, greeter := stub(t, p.Where()["listen"], source(t, run.TLS{CA: authority.CA}).Client())
	got, err := greeter.SayHello(ofUser(ctx, "anna"), wrapperspb.String("n"))
	if err != nil || got.GetValue() != "greeter-0 true true sheddable_plus nightly" {
		t.Errorf("%q, %v", got.GetValue(), err)
	}
	p.Signal(syscall.SIGTERM)
	if code := p.End(); code != 0 {
		t.Errorf("exit %d\n%s", code, p.Text())
	}
}
