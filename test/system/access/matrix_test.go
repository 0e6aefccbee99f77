package access

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/slicer-project/slicer/assignment/backoff"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// rights are the verbs of each identity for the jobs of team cache.
var rights = map[string][]string{
	owner: {"own", "watch"}, watcher: {"watch"}, reader: {"read"}, orderer: {"order", "read"}, configurer: {"configure", "read"},
	other: nil, plane: {"watch", "read", asPlane}, admin: {"own", "watch", "read", "order", "configure"}, nameless: nil,
}

// served are the methods of a program's services, as it tells an administrator.
func (b *bed) served(where string) (all []string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), limit)
	defer cancel()
	s, err := reflectionv1.NewServerReflectionClient(b.dial(where, admin)).ServerReflectionInfo(ctx)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := sent(s.Send(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}})); err != nil {
		b.t.Fatal(err)
	}
	m, err := s.Recv()
	if err != nil {
		b.t.Fatalf("the services of %s: %v", where, err)
	}
	for _, x := range m.GetListServicesResponse().GetService() {
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(x.GetName()))
		if err != nil {
			b.t.Fatalf("%s, which %s serves: %v", x.GetName(), where, err)
		}
		for i := range d.(protoreflect.ServiceDescriptor).Methods().Len() {
			all = append(all, x.GetName()+"/"+string(d.(protoreflect.ServiceDescriptor).Methods().Get(i).Name()))
		}
	}
	slices.Sort(all)
	return all
}

// readOnly are those that a Backup Distributor says are for a Distributor.
var readOnly = []string{"PutJob", "DeleteJob", "DrainTask", "InspectJob", "InspectSlices", "GiveOrder", "GetHistory", "ExplainKey", "ListAssigners", "CheckAccess", "CheckJob"}

// TestMatrix calls each RPC of every program as each identity: what it has the verb for is
// let, all else is refused with the identity, the verb and the job.
func TestMatrix(t *testing.T) {
	t.Parallel()
	b := everything(t)
	all := map[string][]string{}
	for _, where := range []string{atAssigner, atFirst, atSecond, atBackup, atServe, atServed} {
		all[where] = b.served(where)
		for _, m := range all[where] {
			if !slices.ContainsFunc(rows, func(r row) bool { return r.method == m }) {
				t.Errorf("%s has no row: who may call it?", m)
			}
		}
	}
	calls := 0
	for _, where := range slices.Sorted(maps.Keys(all)) {
		for _, identity := range slices.Sorted(maps.Keys(rights)) {
			c := b.caller(where, identity)
			for _, r := range rows {
				if slices.Contains(all[where], r.method) {
					if strings.HasPrefix(r.method, leaseService) {
						b.sessions(where, c)
					}
					c.try(t, where, r)
					calls++
				}
			}
		}
		if where != atBackup && where != atServed { // a job may be gone
			b.put(where, configs()[:2]...)
		}
	}
	t.Logf("%d calls", calls)
}

func (b *bed) caller(where, identity string) *caller {
	c := &caller{ClientConn: b.dial(where, identity), identity: identity, task: "t1"}
	if identity == admin {
		c.task = "t2" // t1 is the owner's
	}
	return c
}

const somewhere = "spiffe://corp/somewhere"

// sessions opens a caller's sessions, or renews them: they last for no longer than their
// job's lease duration, which on a busy machine is too short for all rows.
func (b *bed) sessions(where string, c *caller) {
	b.t.Helper()
	if c.session != nil {
		b.renew(where, c.identity, c.session, c.revision)
		b.renew(where, somewhere, c.foreign, c.revision)
		return
	}
	open := func(identity string) []byte {
		ctx, cancel := context.WithTimeout(b.t.Context(), 30*time.Second)
		defer cancel()
		for {
			r, err := slicerv1.NewLeaseServiceClient(b.dial(where, identity)).OpenSession(ctx, &slicerv1.OpenSessionRequest{TtlMs: 600_000, Jobs: []string{openJob}})
			if err == nil {
				c.revision = r.GetRevision()
				return r.GetSession()
			}
			// After its start the store grants nothing until what was granted before has run out.
			if status.Code(err) != codes.Unavailable || !backoff.Sleep(ctx, 100*time.Millisecond) {
				b.t.Fatalf("a session at %s as %s: %v", where, identity, err)
			}
		}
	}
	c.session, c.foreign = open(c.identity), open(somewhere)
}

func (b *bed) renew(where, identity string, session []byte, revision int64) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 20*time.Second)
	defer cancel()
	_, err := slicerv1.NewLeaseServiceClient(b.dial(where, identity)).RenewSession(ctx, &slicerv1.RenewSessionRequest{Session: session, Revision: revision})
	if err != nil {
		b.t.Fatalf("a renewal at %s as %s: %v", where, identity, err)
	}
}

func (c *caller) try(t *testing.T, where string, r row) {
	t.Helper()
	service, method, _ := strings.Cut(r.method, "/")
	backup := (where == atBackup || where == atServed) && service == adminService && slices.Contains(readOnly, method)
	if c.job = cacheJob; service == leaseService {
		c.job = ledgerJob
	}
	if method == "DeleteJob" && slices.Contains(rights[c.identity], r.verb) && !backup {
		return // what may delete a job is seen in the assigner's own tests
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err := r.call(ctx, c)
	name := c.identity
	if name == nameless {
		name = "anonymous"
	}
	may, want := slices.Contains(rights[c.identity], r.verb), fmt.Sprintf("identity %s may not %s job %s", name, r.verb, c.job)
	switch r.verb {
	case "own":
		want += " as task " + c.task
		if r.method == leaseService+"/AcquireClaim" || r.method == leaseService+"/WatchRecords" {
			want = fmt.Sprintf("identity %s may not own job %s", name, c.job) // of a session that never came to name its task
		}
	case asPlane:
		want = fmt.Sprintf("identity %s may not be part of the control plane", name)
	case asAdmin:
		may, want = c.identity == admin, fmt.Sprintf("identity %s may not call %s/%s, which is for administrators", name, service[strings.LastIndexByte(service, '.')+1:], method)
	case asNamed:
		may, want = c.identity != nameless, "identity anonymous may not call "+method
	case asHolder, asAnyone:
		may = true
	case asForeign:
		if status.Code(err) != codes.NotFound {
			t.Errorf("%s, %s with another's session as %s: %v, want NOT_FOUND", where, r.method, name, err)
		}
		return
	}
	if may && where == atServe && r.method == relayService+"/Attach" {
		if !strings.Contains(status.Convert(err).Message(), "has not been told to") {
			t.Errorf("%s, %s: %v, want that it serves no Distributors", where, r.method, err)
		}
		return
	}
	_, wrong := err.(*wrongList)
	code := status.Code(err)
	// At a front a session that could not join a job is told that, and no more.
	if where == atAssigner && slices.Contains([]string{"AcquireClaim", "WatchRecords", "ReleaseClaim"}, method) && !slices.Contains(rights[c.identity], "own") {
		if code != codes.InvalidArgument || !strings.Contains(status.Convert(err).Message(), "takes part in") {
			t.Errorf("%s, %s as %s: %v, want that the session takes no part", where, r.method, name, err)
		}
		return
	}
	switch {
	case backup:
		if code != codes.Unimplemented {
			t.Errorf("%s, %s as %s: %v, want UNIMPLEMENTED", where, r.method, name, err)
		}
	case !may:
		if code != codes.PermissionDenied || !strings.HasPrefix(status.Convert(err).Message(), want) {
			t.Errorf("%s, %s as %s: %v, want PERMISSION_DENIED: %s", where, r.method, name, err, want)
		}
	case wrong || err != nil && err != errStays && !slices.Contains(r.codes, code):
		t.Errorf("%s, %s (%s) as %s: %v, want it let", where, r.method, r.verb, name, err)
	}
}
