package enforce_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/access"
	"github.com/slicer-project/slicer/assignment/access/accesstest"
	"github.com/slicer-project/slicer/assignment/access/enforce"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ask calls a server that answers with what handle returns.
func ask(t *testing.T, lis string, creds credentials.TransportCredentials, md ...string) error {
	conn, err := grpc.NewClient(lis, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	return conn.Invoke(metadata.AppendToOutgoingContext(ctx, md...), "/x.X/Y", new(emptypb.Empty), new(emptypb.Empty))
}

func serve(t *testing.T, creds credentials.TransportCredentials, handle func(ctx context.Context) error) string {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer(grpc.Creds(creds), grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		if err := s.RecvMsg(new(emptypb.Empty)); err != nil {
			return err
		}
		if err := handle(s.Context()); err != nil {
			return err
		}
		return s.SendMsg(new(emptypb.Empty))
	}))
	done := make(chan struct{})
	go func() { defer close(done); srv.Serve(lis) }()
	t.Cleanup(func() { srv.Stop(); <-done })
	return lis.Addr().String()
}

// Identities come from certificates; a forwarded one counts only if the peer is of the
// control plane.
func TestCaller(t *testing.T) {
	a := accesstest.New(t)
	r, err := enforce.New(enforce.Config{Policy: accesstest.Policy(t, "plane: [spiffe://corp/distributor]\nproxies: [spiffe://corp/proxy]\nadmin: [spiffe://corp/ann]\n")})
	if err != nil {
		t.Fatal(err)
	}
	var got, within enforce.Caller
	handle := func(ctx context.Context) error {
		got, within = r.Caller(ctx), r.Within().Caller(ctx)
		return nil
	}
	const server = "spiffe://corp/server"
	tlsAt := serve(t, a.Server(server), handle)
	// One that asks for a certificate and does not look at it.
	laxAt := serve(t, credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{a.Issue(server)}, ClientAuth: tls.RequestClientCert}), handle)
	plainAt := serve(t, insecure.NewCredentials(), handle)
	for _, tc := range []struct {
		name  string
		at    string
		creds credentials.TransportCredentials
		md    []string
		want  enforce.Caller
		// forwards is the identity for a server that only this process reaches.
		within access.Identity
	}{
		{"plain", plainAt, insecure.NewCredentials(), []string{"slicer-identity", "spiffe://corp/ann"}, enforce.Caller{Identity: access.Anonymous, Nameless: access.NoCertificate}, "spiffe://corp/ann"},
		{"no certificate", tlsAt, a.Client(accesstest.Nobody), nil, enforce.Caller{Identity: access.Anonymous, Nameless: access.NoCertificate}, access.Anonymous},
		{"not verified", laxAt, a.Client("spiffe://corp/ann"), nil, enforce.Caller{Identity: access.Anonymous, Nameless: access.NoCertificate}, access.Anonymous},
		{"no name", tlsAt, a.Client(""), nil, enforce.Caller{Identity: access.Anonymous, Nameless: access.NoName}, access.Anonymous},
		{"a client", tlsAt, a.Client("spiffe://corp/bob"), []string{"slicer-identity", "spiffe://corp/ann"}, enforce.Caller{Identity: "spiffe://corp/bob"}, "spiffe://corp/ann"},
		{"a proxy", tlsAt, a.Client("spiffe://corp/proxy"), []string{"slicer-identity", "spiffe://corp/ann"}, enforce.Caller{Identity: "spiffe://corp/proxy", Carrier: true}, "spiffe://corp/ann"},
		{"plane", tlsAt, a.Client("spiffe://corp/distributor"), nil, enforce.Caller{Identity: "spiffe://corp/distributor", Plane: true, Carrier: true}, "spiffe://corp/distributor"},
		{"plane forwards", tlsAt, a.Client("spiffe://corp/distributor"), []string{"slicer-identity", "spiffe://corp/ann"}, enforce.Caller{Identity: "spiffe://corp/ann", Plane: true, Carrier: true}, "spiffe://corp/ann"},
		{"plane forwards nonsense", tlsAt, a.Client("spiffe://corp/distributor"), []string{"slicer-identity", "spiffe://corp/a b"}, enforce.Caller{Identity: access.Anonymous, Plane: true, Carrier: true}, access.Anonymous},
		{"plane forwards two", tlsAt, a.Client("spiffe://corp/distributor"), []string{"slicer-identity", "spiffe://corp/ann", "slicer-identity", "spiffe://corp/bob"}, enforce.Caller{Identity: access.Anonymous, Plane: true, Carrier: true}, access.Anonymous},
	} {
		if err := ask(t, tc.at, tc.creds, tc.md...); err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		if !strings.HasPrefix(got.Address, "127.0.0.1:") {
			t.Errorf("%s: from %q", tc.name, got.Address)
		}
		if got.Address = ""; got != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
		if !within.Plane || within.Identity != tc.within {
			t.Errorf("%s: within the process %+v, want %s", tc.name, within, tc.within)
		}
	}
}

func TestCheck(t *testing.T) {
	var log bytes.Buffer
	r, err := enforce.New(enforce.Config{Policy: accesstest.Policy(t, "jobs: {watch: [spiffe://corp/bob]}\n"), Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	bob := enforce.Caller{Identity: "spiffe://corp/bob", Address: "1.2.3.4:5"}
	if err := r.Check(bob, access.Question{Verb: assignment.Watch, Job: "cache"}); err != nil || log.Len() > 0 {
		t.Errorf("%v, %s", err, log.String())
	}
	// The identity is the caller's whatever the question says.
	err = r.Check(bob, access.Question{Identity: "spiffe://corp/ann", Verb: assignment.Own, Job: "cache", Task: "t-1"})
	if want := "identity spiffe://corp/bob may not own job cache as task t-1"; status.Code(err) != codes.PermissionDenied || status.Convert(err).Message() != want {
		t.Errorf("%v, want %s", err, want)
	}
	for _, want := range []string{"audit=refused", "identity=spiffe://corp/bob", "peer=1.2.3.4:5", "verb=own", "job=cache", "task=t-1", `rule="policy jobs, no pattern"`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %s:\n%s", want, log.String())
		}
	}
	if err := r.CheckPlane(bob, "Attach"); status.Code(err) != codes.PermissionDenied {
		t.Error(err)
	}
	// Too many leave no line each.
	for range 1000 {
		r.CheckPlane(bob, "Attach")
	}
	if n := strings.Count(log.String(), "\n"); n < 2 || n > 100 {
		t.Errorf("%d lines for 1,002 refusals", n)
	}
	eve := enforce.Caller{Identity: "spiffe://corp/eve"}
	if r.CheckPlane(eve, "Attach"); !strings.Contains(log.String(), "identity=spiffe://corp/eve") {
		t.Error("what one identity tries hides what another one does")
	}
	if err := r.CheckNamed(bob, "ListAssigners"); err != nil {
		t.Error(err)
	}
	if err := r.CheckNamed(enforce.Caller{Identity: access.Anonymous}, "ListAssigners"); status.Code(err) != codes.PermissionDenied {
		t.Error(err)
	}
	// What a process asks for itself may read, and nothing else, unless the policy names it.
	own := r.Caller(enforce.Own(t.Context(), "spiffe://corp/slicer"))
	if own.Identity != "spiffe://corp/slicer" {
		t.Errorf("the process's own calls are passed on for %s", own.Identity)
	}
	if err := r.Check(own, access.Question{Verb: assignment.Read, Job: "cache"}); err != nil {
		t.Error(err)
	}
	if err := r.CheckNamed(r.Peer(enforce.Own(t.Context(), access.Anonymous)), "ListAssigners"); err != nil {
		t.Error(err)
	}
	for _, v := range []assignment.Verb{assignment.Own, assignment.Watch, assignment.Order, assignment.Configure} {
		if err := r.Check(own, access.Question{Verb: v, Job: "cache"}); status.Code(err) != codes.PermissionDenied {
			t.Errorf("a process may %s by itself: %v", v, err)
		}
	}
	_, changed := r.Within().Policy()
	r.SetPolicy(nil)
	select {
	case <-changed:
	default:
		t.Error("a new policy is not told")
	}
	if err := r.Check(bob, access.Question{Verb: assignment.Configure, Job: "cache"}); err != nil {
		t.Errorf("after the policy has gone: %v", err)
	}
	var none *enforce.Rights
	if err := none.Check(bob, access.Question{Verb: assignment.Configure}); err != nil || none.CheckPlane(none.Caller(t.Context()), "x") != nil || none.CheckNamed(none.Caller(t.Context()), "x") != nil || none.Within() != nil {
		t.Error("no rights refuse something")
	}
}

// A call that is passed on says where it comes from in the log as well, and why its caller has
// no name; who is not of the control plane is not believed.
func TestWhereCallsComeFrom(t *testing.T) {
	a := accesstest.New(t)
	r, err := enforce.New(enforce.Config{Policy: accesstest.Policy(t, "plane: [spiffe://corp/distributor]\n")})
	if err != nil {
		t.Fatal(err)
	}
	var got enforce.Caller
	at := serve(t, a.Server("spiffe://corp/server"), func(ctx context.Context) error {
		got = r.Caller(ctx)
		return nil
	})
	passOn := func(id string, c enforce.Caller) enforce.Caller {
		t.Helper()
		md, _ := metadata.FromOutgoingContext(enforce.Forward(t.Context(), c))
		var pairs []string
		for k, v := range md {
			pairs = append(pairs, k, v[0])
		}
		if err := ask(t, at, a.Client(id), pairs...); err != nil {
			t.Fatal(err)
		}
		return got
	}
	client := enforce.Caller{Identity: access.Anonymous, Nameless: access.NoName, Address: "10.1.1.1:7"}
	once := passOn("spiffe://corp/distributor", client)
	if once.Address != client.Address || !strings.HasPrefix(once.Via, "127.0.0.1:") || once.From() != once.Address+" via "+once.Via || once.Nameless != access.NoName {
		t.Errorf("%+v of %s", once, once.From())
	}
	if twice := passOn("spiffe://corp/distributor", once); twice.From() != once.From()+" via "+twice.Via || twice.Nameless != access.NoName {
		t.Errorf("%+v of %s", twice, twice.From())
	}
	if liar := passOn("spiffe://corp/eve", client); liar.Via != "" || !strings.HasPrefix(liar.Address, "127.0.0.1:") || liar.Identity != "spiffe://corp/eve" {
		t.Errorf("%+v of %s", liar, liar.From())
	}
	for _, address := range []string{"", strings.Repeat("1", 201), "10.1.1.1:7\x7f"} {
		client.Address = address
		if c := passOn("spiffe://corp/distributor", client); c.Via != "" || !strings.HasPrefix(c.Address, "127.0.0.1:") {
			t.Errorf("%.20q: %+v of %s", address, c, c.From())
		}
	}
	if c := (enforce.Caller{Identity: access.Anonymous, Within: true}); c.Name() != "in-process" {
		t.Error(c.Name())
	}
	if c := (enforce.Caller{Identity: "spiffe://corp/ann", Within: true}); c.Name() != "spiffe://corp/ann" {
		t.Error(c.Name())
	}
}

// What a refusal says besides: why a caller has no name; to readers where the rule is to be
// seen; to others nothing that depends on the job.
func TestAdvice(t *testing.T) {
	var log bytes.Buffer
	r, err := enforce.New(enforce.Config{
		Policy: accesstest.Policy(t, "jobs: {read: [spiffe://corp/auditor]}\n"), Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	own, err := assignment.AccessOf(map[assignment.Verb][]string{assignment.Read: {"spiffe://corp/bob"}, assignment.Order: {"spiffe://corp/ops"}})
	if err != nil {
		t.Fatal(err)
	}
	said := func(c enforce.Caller, a assignment.Access, job string) string {
		return status.Convert(r.Check(c, access.Question{Verb: assignment.Order, Job: job, Access: a})).Message()
	}
	named := func(id access.Identity) enforce.Caller { return enforce.Caller{Identity: id} }
	for _, tc := range []struct {
		c    enforce.Caller
		a    assignment.Access
		want string
	}{
		{named("spiffe://corp/bob"), own, ": slicerctl access check cache --verb order tells by which rule"},
		{named("spiffe://corp/bob"), assignment.Access{}, ""},
		{named("spiffe://corp/auditor"), own, ""}, // which has taken the place of what the policy says
		{named("spiffe://corp/auditor"), assignment.Access{}, ": the policy decides, and an administrator's slicerctl access check tells by which rule"},
		{named("spiffe://corp/eve"), own, ""},
		{named(access.Anonymous), own, ""}, // one that was passed on without a word of why
		{enforce.Caller{Identity: access.Anonymous, Nameless: access.NoCertificate}, own, ": no certificate was presented"},
		{enforce.Caller{Identity: access.Anonymous, Nameless: access.NoName}, own, ": the certificate has no SPIFFE URI and no DNS SAN"},
	} {
		if got, want := said(tc.c, tc.a, "cache"), "identity "+string(tc.c.Identity)+" may not order job cache"+tc.want; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	nobody := enforce.Caller{Identity: access.Anonymous, Nameless: access.NoName}
	if err := r.CheckPlane(nobody, "Attach"); !strings.HasSuffix(err.Error(), "(Attach): the certificate has no SPIFFE URI and no DNS SAN") {
		t.Error(err)
	}
	if err := r.CheckNamed(nobody, "ListAssigners"); !strings.HasSuffix(err.Error(), "which takes a certificate with a name: the certificate has no SPIFFE URI and no DNS SAN") {
		t.Error(err)
	}
	// Whose name it is, is in the log and not in the answer.
	const holder = "spiffe://corp/plane/holder"
	if err := r.RefuseName(named("spiffe://corp/plane/other"), "Attach", "distributor d1", holder); strings.Contains(err.Error(), holder) {
		t.Error(err)
	}
	for _, want := range []string{"audit=refused", "identity=spiffe://corp/plane/other", `rule="distributor d1 is ` + holder + `"`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %s:\n%s", want, log.String())
		}
	}
}

// A policy that cannot be read shows until another one is in force.
func TestStale(t *testing.T) {
	reg := prometheus.NewRegistry()
	r, err := enforce.New(enforce.Config{Policy: accesstest.Policy(t, "admin: [a]\n"), Registerer: reg})
	if err != nil {
		t.Fatal(err)
	}
	want := func(stale, failures float64) {
		t.Helper()
		got, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]float64{}
		for _, f := range got {
			for _, m := range f.Metric {
				seen[f.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
		if seen["slicer_access_policy_stale"] != stale || seen["slicer_access_policy_reload_failures_total"] != failures {
			t.Errorf("%v, want stale %v, failures %v", seen, stale, failures)
		}
	}
	want(0, 0)
	r.PolicyFailed()
	want(1, 1)
	r.SetPolicy(nil)
	want(0, 1)
}
