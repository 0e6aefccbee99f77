package introspect

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
)

// healthPoll is how often a stream looks whether the health has changed.
const healthPoll = time.Second

// health is that of the process: all its services are ready, or none.
type health struct {
	healthv1.UnimplementedHealthServer
	services []string // "" is the server as a whole
	ready    func() error
	quit     <-chan struct{}
}

func (h *health) now() healthv1.HealthCheckResponse_ServingStatus {
	select {
	case <-h.quit:
		return healthv1.HealthCheckResponse_NOT_SERVING
	default:
	}
	if h.ready() != nil {
		return healthv1.HealthCheckResponse_NOT_SERVING
	}
	return healthv1.HealthCheckResponse_SERVING
}

// Check implements the service Health.
func (h *health) Check(_ context.Context, r *healthv1.HealthCheckRequest) (*healthv1.HealthCheckResponse, error) {
	if !slices.Contains(h.services, r.GetService()) {
		return nil, status.Errorf(codes.NotFound, "service %q is not served here", assignment.Clip(r.GetService(), 80))
	}
	return &healthv1.HealthCheckResponse{Status: h.now()}, nil
}

// List implements the service Health.
func (h *health) List(context.Context, *healthv1.HealthListRequest) (*healthv1.HealthListResponse, error) {
	m := &healthv1.HealthListResponse{Statuses: make(map[string]*healthv1.HealthCheckResponse)}
	for _, name := range h.services {
		m.Statuses[name] = &healthv1.HealthCheckResponse{Status: h.now()}
	}
	return m, nil
}

// Watch implements the service Health.
func (h *health) Watch(r *healthv1.HealthCheckRequest, stream healthv1.Health_WatchServer) error {
	now := h.now
	if !slices.Contains(h.services, r.GetService()) {
		now = func() healthv1.HealthCheckResponse_ServingStatus {
			return healthv1.HealthCheckResponse_SERVICE_UNKNOWN
		}
	}
	ticks := time.NewTicker(healthPoll)
	defer ticks.Stop()
	last := healthv1.HealthCheckResponse_ServingStatus(-1)
	for {
		if s := now(); s != last {
			last = s
			if err := stream.Send(&healthv1.HealthCheckResponse{Status: s}); err != nil {
				return err
			}
		}
		select {
		case <-ticks.C:
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		case <-h.quit:
			return status.Error(codes.Unavailable, "the server is stopping")
		}
	}
}
