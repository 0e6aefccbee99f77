package access

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	autoshardingv1 "github.com/slicer-project/slicer/proto/autosharding/v1"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// What a row asks for besides the verbs of jobs.
const (
	asPlane   = "plane"
	asNamed   = "named"   // any identity but anonymous
	asHolder  = "holder"  // a session's, whatever the right
	asAnyone  = "anyone"  // a list has what may be read
	asForeign = "foreign" // another's session: to none
	asAdmin   = "admin"   // of the policy
)

// row is an RPC in one of its meanings.
type row struct {
	method, verb string
	// call returns nil or errStays where it was let.
	call func(ctx context.Context, c *caller) error
	// codes are those that it may end with besides where it was let, as there is nothing
	// to be had.
	codes []codes.Code
}

// caller is an identity at a server.
type caller struct {
	*grpc.ClientConn
	identity string
	job      string // cacheJob, or ledgerJob for leases
	task     string
	session  []byte // its own, of openJob
	foreign  []byte // another's
	revision int64  // what both were told last, at a front of etcd
}

func (c *caller) adminService() slicerv1.AdminServiceClient {
	return slicerv1.NewAdminServiceClient(c)
}
func (c *caller) leases() slicerv1.LeaseServiceClient { return slicerv1.NewLeaseServiceClient(c) }

func watch(role slicerv1.Role) func(ctx context.Context, c *caller) error {
	return func(ctx context.Context, c *caller) error {
		s, err := slicerv1.NewSubscriberServiceClient(c).Watch(ctx)
		if err != nil {
			return err
		}
		h := &slicerv1.Hello{Job: c.job, Role: role, ClientId: "client"}
		if role == slicerv1.Role_ROLE_SLICELET {
			h.Task = &slicerv1.Task{Name: c.task, Incarnation: 7, Address: "127.0.0.1:9", Weight: 1, State: slicerv1.TaskState_TASK_STATE_RUNNING}
			h.Report = &slicerv1.Report{Sequence: 1, State: slicerv1.TaskState_TASK_STATE_RUNNING}
		}
		if err := sent(s.Send(&slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Hello{Hello: h}})); err != nil {
			return err
		}
		return begun(func() error { _, err := s.Recv(); return err })
	}
}

// sent is the error of a Send on a client's stream. A server that refuses before it has read
// ends the stream, which Send reports as io.EOF and of which Recv knows the status.
func sent(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func attach(s grpc.BidiStreamingClient[slicerv1.AttachRequest, slicerv1.AttachResponse], err error) error {
	if err != nil {
		return err
	}
	if err := sent(s.Send(&slicerv1.AttachRequest{Message: &slicerv1.AttachRequest_Hello{Hello: &slicerv1.DistributorHello{DistributorId: "false"}}})); err != nil {
		return err
	}
	return begun(func() error { _, err := s.Recv(); return err })
}

// unary is a row of a method of AdminService or LeaseService.
func unary[Req, Resp any](service, method, verb string, call func(c *caller) func(context.Context, *Req, ...grpc.CallOption) (*Resp, error), req func(c *caller) *Req, may ...codes.Code) row {
	return row{service + "/" + method, verb, func(ctx context.Context, c *caller) error {
		_, err := call(c)(ctx, req(c))
		return err
	}, may}
}

const (
	adminService  = "slicer.v1.AdminService"
	leaseService  = "slicer.v1.LeaseService"
	subscriber    = "slicer.v1.SubscriberService"
	relayService  = "slicer.v1.RelayService"
	assignerSvc   = "slicer.v1.AssignerService"
	discovery     = "envoy.service.discovery.v3.AggregatedDiscoveryService"
	shardingWatch = "google.cloud.autosharding.v1.AutoshardingService/WatchShardingAssignment"
)

// rows are all of them: a service's RPC without one fails the test.
var rows = slices.Concat(ours, tools)

var ours = []row{
	unary(adminService, "PutJob", "configure", func(c *caller) func(context.Context, *slicerv1.PutJobRequest, ...grpc.CallOption) (*slicerv1.PutJobResponse, error) {
		return c.adminService().PutJob
	}, func(c *caller) *slicerv1.PutJobRequest {
		return &slicerv1.PutJobRequest{Config: &slicerv1.JobConfig{Name: c.job, Access: cacheAccess()}, ExpectedVersion: 1000}
	}, codes.Aborted),
	unary(adminService, "CheckJob", "configure", func(c *caller) func(context.Context, *slicerv1.CheckJobRequest, ...grpc.CallOption) (*slicerv1.CheckJobResponse, error) {
		return c.adminService().CheckJob
	}, func(c *caller) *slicerv1.CheckJobRequest {
		return &slicerv1.CheckJobRequest{Config: &slicerv1.JobConfig{Name: c.job, Access: cacheAccess()}, ExpectedVersion: 1000}
	}, codes.Aborted),
	unary(adminService, "GetJob", "read", func(c *caller) func(context.Context, *slicerv1.GetJobRequest, ...grpc.CallOption) (*slicerv1.GetJobResponse, error) {
		return c.adminService().GetJob
	}, func(c *caller) *slicerv1.GetJobRequest { return &slicerv1.GetJobRequest{Name: c.job} }),
	unary(adminService, "InspectJob", "read", func(c *caller) func(context.Context, *slicerv1.InspectJobRequest, ...grpc.CallOption) (*slicerv1.InspectJobResponse, error) {
		return c.adminService().InspectJob
	}, func(c *caller) *slicerv1.InspectJobRequest { return &slicerv1.InspectJobRequest{Job: c.job} }),
	unary(adminService, "InspectSlices", "read", func(c *caller) func(context.Context, *slicerv1.InspectSlicesRequest, ...grpc.CallOption) (*slicerv1.InspectSlicesResponse, error) {
		return c.adminService().InspectSlices
	}, func(c *caller) *slicerv1.InspectSlicesRequest { return &slicerv1.InspectSlicesRequest{Job: c.job} }),
	unary(adminService, "GetHistory", "read", func(c *caller) func(context.Context, *slicerv1.GetHistoryRequest, ...grpc.CallOption) (*slicerv1.GetHistoryResponse, error) {
		return c.adminService().GetHistory
	}, func(c *caller) *slicerv1.GetHistoryRequest { return &slicerv1.GetHistoryRequest{Job: c.job} }),
	unary(adminService, "ExplainKey", "read", func(c *caller) func(context.Context, *slicerv1.ExplainKeyRequest, ...grpc.CallOption) (*slicerv1.ExplainKeyResponse, error) {
		return c.adminService().ExplainKey
	}, func(c *caller) *slicerv1.ExplainKeyRequest { return &slicerv1.ExplainKeyRequest{Job: c.job} }, codes.NotFound, codes.FailedPrecondition),
	unary(adminService, "CheckAccess", "read", func(c *caller) func(context.Context, *slicerv1.CheckAccessRequest, ...grpc.CallOption) (*slicerv1.CheckAccessResponse, error) {
		return c.adminService().CheckAccess
	}, func(c *caller) *slicerv1.CheckAccessRequest {
		return &slicerv1.CheckAccessRequest{Job: c.job, Identity: somewhere, Verb: "own"}
	}),
	unary(adminService, "DrainTask", "order", func(c *caller) func(context.Context, *slicerv1.DrainTaskRequest, ...grpc.CallOption) (*slicerv1.DrainTaskResponse, error) {
		return c.adminService().DrainTask
	}, func(c *caller) *slicerv1.DrainTaskRequest {
		return &slicerv1.DrainTaskRequest{Job: c.job, Task: "none", Who: "x"}
	}, codes.NotFound),
	unary(adminService, "GiveOrder", "order", func(c *caller) func(context.Context, *slicerv1.GiveOrderRequest, ...grpc.CallOption) (*slicerv1.GiveOrderResponse, error) {
		return c.adminService().GiveOrder
	}, func(c *caller) *slicerv1.GiveOrderRequest {
		return &slicerv1.GiveOrderRequest{Job: c.job, Who: "x", Order: &slicerv1.GiveOrderRequest_Include{Include: &slicerv1.IncludeOrder{Task: "none"}}}
	}, codes.NotFound, codes.FailedPrecondition),
	unary(adminService, "DeleteJob", "configure", func(c *caller) func(context.Context, *slicerv1.DeleteJobRequest, ...grpc.CallOption) (*slicerv1.DeleteJobResponse, error) {
		return c.adminService().DeleteJob
	}, func(c *caller) *slicerv1.DeleteJobRequest { return &slicerv1.DeleteJobRequest{Name: c.job} }),
	{adminService + "/ListJobs", asAnyone, listJobs, nil},
	unary(adminService, "ListAssigners", asNamed, func(c *caller) func(context.Context, *slicerv1.ListAssignersRequest, ...grpc.CallOption) (*slicerv1.ListAssignersResponse, error) {
		return c.adminService().ListAssigners
	}, func(*caller) *slicerv1.ListAssignersRequest { return &slicerv1.ListAssignersRequest{} }),

	{assignerSvc + "/Attach", asPlane, func(ctx context.Context, c *caller) error {
		return attach(slicerv1.NewAssignerServiceClient(c).Attach(ctx))
	}, nil},
	{relayService + "/Attach", asPlane, func(ctx context.Context, c *caller) error {
		return attach(slicerv1.NewRelayServiceClient(c).Attach(ctx))
	}, []codes.Code{codes.FailedPrecondition}},
	{relayService + "/Describe", asNamed, func(ctx context.Context, c *caller) error {
		_, err := slicerv1.NewRelayServiceClient(c).Describe(ctx, &slicerv1.DescribeRequest{})
		return err
	}, nil},

	{subscriber + "/Watch", "watch", watch(slicerv1.Role_ROLE_CLERK), nil},
	{subscriber + "/Watch", "watch", watch(slicerv1.Role_ROLE_OBSERVER), nil},
	{subscriber + "/Watch", "own", watch(slicerv1.Role_ROLE_SLICELET), nil},
	{subscriber + "/Fetch", "watch", func(ctx context.Context, c *caller) error {
		s, err := slicerv1.NewSubscriberServiceClient(c).Fetch(ctx, &slicerv1.FetchRequest{Job: c.job})
		if err == nil {
			_, err = s.Recv()
		}
		return err
	}, []codes.Code{codes.NotFound}},
	{shardingWatch, "watch", func(ctx context.Context, c *caller) error {
		s, err := autoshardingv1.NewAutoshardingServiceClient(c).WatchShardingAssignment(ctx)
		if err != nil {
			return err
		}
		m := &autoshardingv1.WatchShardingAssignmentRequest_InitialClientConfig{InitialClientConfig: &autoshardingv1.InitialClientConfig{Target: c.job, ClientUuid: "123e4567-e89b-12d3-a456-426614174000"}}
		if err := sent(s.Send(&autoshardingv1.WatchShardingAssignmentRequest{Message: m})); err != nil {
			return err
		}
		return begun(func() error { // its config comes before it is known whose the job is
			for range 2 {
				if _, err := s.Recv(); err != nil {
					return err
				}
			}
			return nil
		})
	}, nil},

	{discovery + "/StreamAggregatedResources", "watch", func(ctx context.Context, c *caller) error {
		s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(c).StreamAggregatedResources(ctx)
		if err != nil {
			return err
		}
		if err := sent(s.Send(&discoveryv3.DiscoveryRequest{
			Node: &corev3.Node{Id: "stranger"}, TypeUrl: "type.googleapis.com/envoy.config.listener.v3.Listener", ResourceNames: []string{c.job},
		})); err != nil {
			return err
		}
		return begun(func() error { _, err := s.Recv(); return err })
	}, nil},
	{discovery + "/DeltaAggregatedResources", asAnyone, func(ctx context.Context, c *caller) error {
		s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(c).DeltaAggregatedResources(ctx)
		if err == nil {
			_, err = s.Recv()
		}
		return err
	}, []codes.Code{codes.Unimplemented}},

	{leaseService + "/OpenSession", "own", func(ctx context.Context, c *caller) error {
		_, err := c.leases().OpenSession(ctx, &slicerv1.OpenSessionRequest{TtlMs: 1000, Jobs: []string{c.job}, Tasks: map[string]string{c.job: c.task}})
		return err
	}, nil},
	{leaseService + "/JoinJob", "own", func(ctx context.Context, c *caller) error {
		_, err := c.leases().JoinJob(ctx, &slicerv1.JoinJobRequest{Session: c.session, Job: c.job, Task: c.task})
		return err
	}, nil},
	{leaseService + "/AcquireClaim", "own", func(ctx context.Context, c *caller) error {
		_, err := c.leases().AcquireClaim(ctx, &slicerv1.AcquireClaimRequest{Session: c.session, Job: c.job, Claim: &slicerv1.Claim{To: 1}})
		return err
	}, []codes.Code{codes.Unavailable}},
	{leaseService + "/WatchRecords", "own", func(ctx context.Context, c *caller) error {
		s, err := c.leases().WatchRecords(ctx, &slicerv1.WatchRecordsRequest{Session: c.session, Job: c.job})
		if err == nil {
			_, err = s.Recv()
		}
		return err
	}, nil},
	{leaseService + "/ReleaseClaim", asHolder, func(ctx context.Context, c *caller) error {
		_, err := c.leases().ReleaseClaim(ctx, &slicerv1.ReleaseClaimRequest{Session: c.session, Job: c.job, Claim: &slicerv1.Claim{To: 1}})
		return err
	}, nil},
	{leaseService + "/RenewSession", asHolder, func(ctx context.Context, c *caller) error {
		_, err := c.leases().RenewSession(ctx, &slicerv1.RenewSessionRequest{Session: c.session, Revision: c.revision})
		return err
	}, nil},
	{leaseService + "/RenewSession", asForeign, func(ctx context.Context, c *caller) error {
		_, err := c.leases().RenewSession(ctx, &slicerv1.RenewSessionRequest{Session: c.foreign, Revision: c.revision})
		return err
	}, nil},
	{leaseService + "/RenewSessions", asHolder, func(ctx context.Context, c *caller) error {
		return renews(ctx, c, c.session)
	}, nil},
	{leaseService + "/RenewSessions", asForeign, func(ctx context.Context, c *caller) error {
		return renews(ctx, c, c.foreign)
	}, nil},
	{leaseService + "/CloseSession", asForeign, func(ctx context.Context, c *caller) error {
		_, err := c.leases().CloseSession(ctx, &slicerv1.CloseSessionRequest{Session: c.foreign})
		return err
	}, nil},
	{leaseService + "/CloseSession", asHolder, func(ctx context.Context, c *caller) error {
		_, err := c.leases().CloseSession(ctx, &slicerv1.CloseSessionRequest{Session: c.session})
		return err
	}, nil},
}

func renews(ctx context.Context, c *caller, session []byte) error {
	s, err := c.leases().RenewSessions(ctx)
	if err == nil {
		err = sent(s.Send(&slicerv1.RenewSessionsRequest{Number: 1, Renewal: &slicerv1.RenewSessionRequest{Session: session, Revision: c.revision}}))
	}
	if err == nil {
		_, err = s.Recv()
	}
	return err
}

// listJobs wants a list of what the caller may read.
func listJobs(ctx context.Context, c *caller) error {
	r, err := c.adminService().ListJobs(ctx, &slicerv1.ListJobsRequest{})
	if err != nil {
		return err
	}
	var got []string
	for _, j := range r.GetJobs() {
		got = append(got, j.GetConfig().GetName())
	}
	want := map[string]string{
		reader: "cache ledger", orderer: "cache ledger", configurer: "cache ledger", other: "other",
		plane: "cache ledger open other", admin: "cache ledger open other",
	}[c.identity]
	if list := strings.Join(got, " "); list != want {
		return &wrongList{list, want}
	}
	return nil
}

type wrongList struct{ got, want string }

func (w *wrongList) Error() string { return "lists " + w.got + ", want " + w.want }
