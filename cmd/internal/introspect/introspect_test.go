package introspect_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	channelzv1 "google.golang.org/grpc/channelz/grpc_channelz_v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/slicer-project/slicer/assignment/access/accesstest"
	"github.com/slicer-project/slicer/assignment/access/enforce"
	"github.com/slicer-project/slicer/cmd/internal/introspect"
	"github.com/slicer-project/slicer/cmd/internal/run"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const admin = "slicer.v1.AdminService"

// served is a server with a service of its own and the tools.
func served(t *testing.T, lis net.Listener, creds credentials.TransportCredentials, rights *enforce.Rights, ready func() error) *introspect.Services {
	t.Helper()
	tools := introspect.New(introspect.Config{Ready: ready, Rights: rights})
	s := run.Serve(lis, creds, tools.After(func(r grpc.ServiceRegistrar) {
		slicerv1.RegisterAdminServiceServer(r, slicerv1.UnimplementedAdminServiceServer{})
	}))
	t.Cleanup(func() {
		tools.Close()
		if err := s.Stop(nil); err != nil {
			t.Error(err)
		}
	})
	return tools
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return lis
}

func dial(t *testing.T, target string, creds credentials.TransportCredentials, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	cc, err := grpc.NewClient(target, append(opts, grpc.WithTransportCredentials(creds))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cc.Close() })
	return cc
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// reflected asks for the names of the services.
func reflected(ctx context.Context, cc grpc.ClientConnInterface) (names []string, err error) {
	s, err := reflectionv1.NewServerReflectionClient(cc).ServerReflectionInfo(ctx)
	if err != nil {
		return nil, err
	}
	// Of an error Recv tells.
	_ = s.Send(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}})
	m, err := s.Recv()
	for _, x := range m.GetListServicesResponse().GetService() {
		names = append(names, x.GetName())
	}
	return names, err
}

func servers(ctx context.Context, cc grpc.ClientConnInterface) (int, error) {
	m, err := channelzv1.NewChannelzClient(cc).GetServers(ctx, &channelzv1.GetServersRequest{})
	return len(m.GetServer()), err
}

// TestHealth: it is that of ready, for each service and the whole, and streams of it end
// when the process stops.
func TestHealth(t *testing.T) {
	var down atomic.Bool
	lis := listen(t)
	tools := served(t, lis, insecure.NewCredentials(), nil, func() error {
		if down.Load() {
			return errors.New("the store is down")
		}
		return nil
	})
	ctx := within(t)
	c := healthv1.NewHealthClient(dial(t, lis.Addr().String(), insecure.NewCredentials()))
	watch, err := c.Watch(ctx, &healthv1.HealthCheckRequest{Service: admin})
	if err != nil {
		t.Fatal(err)
	}
	unknown, err := c.Watch(ctx, &healthv1.HealthCheckRequest{Service: "none"})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := unknown.Recv(); m.GetStatus() != healthv1.HealthCheckResponse_SERVICE_UNKNOWN {
		t.Errorf("an unknown service: %v, %v", m, err)
	}
	for _, want := range []healthv1.HealthCheckResponse_ServingStatus{healthv1.HealthCheckResponse_SERVING, healthv1.HealthCheckResponse_NOT_SERVING} {
		if m, err := watch.Recv(); m.GetStatus() != want {
			t.Fatalf("watch: %v, %v, want %v", m, err, want)
		}
		for _, service := range []string{"", admin} {
			if m, err := c.Check(ctx, &healthv1.HealthCheckRequest{Service: service}); m.GetStatus() != want {
				t.Errorf("check of %q: %v, %v, want %v", service, m, err, want)
			}
		}
		if m, err := c.List(ctx, &healthv1.HealthListRequest{}); len(m.GetStatuses()) != 2 || m.GetStatuses()[admin].GetStatus() != want {
			t.Errorf("list: %v, %v, want %v", m, err, want)
		}
		down.Store(true)
	}
	if _, err := c.Check(ctx, &healthv1.HealthCheckRequest{Service: "none"}); status.Code(err) != codes.NotFound {
		t.Errorf("check of an unknown service: %v", err)
	}
	down.Store(false)
	if m, err := watch.Recv(); m.GetStatus() != healthv1.HealthCheckResponse_SERVING {
		t.Errorf("watch, up again: %v, %v", m, err)
	}
	tools.Close()
	for {
		m, err := watch.Recv()
		if err == nil && m.GetStatus() == healthv1.HealthCheckResponse_NOT_SERVING {
			continue
		}
		if status.Code(err) != codes.Unavailable {
			t.Errorf("watch, stopping: %v, %v", m, err)
		}
		break
	}
	if m, err := c.Check(ctx, &healthv1.HealthCheckRequest{}); m.GetStatus() != healthv1.HealthCheckResponse_NOT_SERVING {
		t.Errorf("check, stopping: %v, %v", m, err)
	}
}

// TestWithoutPolicy: reflection and channelz are for this machine, health is for all.
func TestWithoutPolicy(t *testing.T) {
	lis, elsewhere := listen(t), bufconn.Listen(1<<16)
	ready := func() error { return nil }
	served(t, lis, insecure.NewCredentials(), nil, ready)
	served(t, elsewhere, insecure.NewCredentials(), nil, ready)
	ctx := within(t)
	here := dial(t, lis.Addr().String(), insecure.NewCredentials())
	names, err := reflected(ctx, here)
	for _, want := range []string{admin, "grpc.health.v1.Health", "grpc.channelz.v1.Channelz", "grpc.reflection.v1.ServerReflection"} {
		if !slices.Contains(names, want) {
			t.Errorf("reflection lacks %s: %v, %v", want, names, err)
		}
	}
	if n, err := servers(ctx, here); n < 2 {
		t.Errorf("channelz has %d servers, %v", n, err)
	}
	there := dial(t, "passthrough:///there", insecure.NewCredentials(), grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return elsewhere.DialContext(ctx) }))
	if _, err := reflected(ctx, there); status.Code(err) != codes.PermissionDenied {
		t.Errorf("reflection for another machine: %v", err)
	}
	if _, err := servers(ctx, there); status.Code(err) != codes.PermissionDenied {
		t.Errorf("channelz for another machine: %v", err)
	}
	if m, err := healthv1.NewHealthClient(there).Check(ctx, &healthv1.HealthCheckRequest{}); m.GetStatus() != healthv1.HealthCheckResponse_SERVING {
		t.Errorf("health for another machine: %v, %v", m, err)
	}
}

// TestWithPolicy: they are for administrators, and not for what is on this machine.
func TestWithPolicy(t *testing.T) {
	a := accesstest.New(t)
	lis := listen(t)
	served(t, lis, a.Server("spiffe://corp/part"), accesstest.Rights(t, "admin: [spiffe://corp/ann]\nplane: [spiffe://corp/part]\n", nil), func() error { return nil })
	ctx := within(t)
	for identity, want := range map[string]codes.Code{"spiffe://corp/ann": codes.OK, "spiffe://corp/bob": codes.PermissionDenied, "spiffe://corp/part": codes.PermissionDenied} {
		cc := dial(t, lis.Addr().String(), a.Client(identity))
		if _, err := reflected(ctx, cc); status.Code(err) != want {
			t.Errorf("reflection as %s: %v, want %v", identity, err, want)
		}
		if _, err := servers(ctx, cc); status.Code(err) != want {
			t.Errorf("channelz as %s: %v, want %v", identity, err, want)
		}
		if _, err := healthv1.NewHealthClient(cc).Check(ctx, &healthv1.HealthCheckRequest{}); err != nil {
			t.Errorf("health as %s: %v", identity, err)
		}
	}
}
