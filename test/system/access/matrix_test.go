package access

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assigner"
	"github.com/slicer-project/slicer/assignment/backoff"
	"github.com/slicer-project/slicer/assignment/store/pebblestore"
	"github.com/slicer-project/slicer/backupdist"
	"github.com/slicer-project/slicer/distributor"
	"github.com/slicer-project/slicer/lease/serve"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// rights are the verbs of each identity for the jobs of team cache.
var rights = map[string][]string{
	owner: {"own", "watch"}, watcher: {"watch"}, reader: {"read"}, orderer: {"order", "read"}, configurer: {"configure", "read"},
	other: nil, plane: {"watch", "read", asPlane}, admin: {"own", "watch", "read", "order", "configure"}, nameless: nil,
}

// registered are the methods of each program's services, as its parts register them.
func registered(t *testing.T) map[string][]string {
	t.Helper()
	db, err := pebblestore.Open(t.TempDir(), pebblestore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	leases, err := serve.Open(t.Context(), serve.Config{Storage: db.Leases()})
	if err != nil {
		t.Fatal(err)
	}
	defer leases.Close()
	a, err := assigner.New(assigner.Config{ID: "a", Address: "127.0.0.1:1", Stores: []assigner.NamedStore{{Backend: db}}})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	d, err := distributor.New(distributor.Config{ID: "d", Assigners: []string{"127.0.0.1:1"}, DialOptions: []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return nil, errStays })}})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	backup, err := backupdist.New(backupdist.Config{Store: db})
	if err != nil {
		t.Fatal(err)
	}
	defer backup.Close()
	methods := func(parts ...interface{ Register(grpc.ServiceRegistrar) }) (all []string) {
		s := grpc.NewServer()
		for _, p := range parts {
			p.Register(s)
		}
		for service, info := range s.GetServiceInfo() {
			for _, m := range info.Methods {
				all = append(all, service+"/"+m.Name)
			}
		}
		slices.Sort(all)
		return all
	}
	return map[string][]string{
		atAssigner: methods(a, leases), atFirst: methods(d), atSecond: methods(d), atBackup: methods(backup),
		atServe: methods(d, leases), atServed: methods(backup, leases),
	}
}

// readOnly are those that a Backup Distributor says are for a Distributor.
var readOnly = []string{"PutJob", "DeleteJob", "DrainTask", "InspectJob", "InspectSlices", "GiveOrder", "GetHistory", "ExplainKey", "ListAssigners", "CheckAccess"}

// TestMatrix calls each RPC of every program as each identity: what it has the verb for is
// let, all else is refused with the identity, the verb and the job.
func TestMatrix(t *testing.T) {
	all := registered(t)
	for _, methods := range all {
		for _, m := range methods {
			if !slices.ContainsFunc(rows, func(r row) bool { return r.method == m }) {
				t.Errorf("%s has no row: who may call it?", m)
			}
		}
	}
	b := everything(t)
	calls := 0
	for _, where := range slices.Sorted(maps.Keys(all)) {
		for _, identity := range slices.Sorted(maps.Keys(rights)) {
			c := b.caller(where, identity, slices.Contains(all[where], leaseService+"/OpenSession"))
			for _, r := range rows {
				if slices.Contains(all[where], r.method) {
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

func (b *bed) caller(where, identity string, leases bool) *caller {
	b.t.Helper()
	c := &caller{ClientConn: b.dial(where, identity), identity: identity, task: "t1"}
	if identity == admin {
		c.task = "t2" // t1 is the owner's
	}
	if leases {
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
		c.session, c.foreign = open(identity), open("spiffe://corp/somewhere")
	}
	return c
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
