package assigner

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment/access/accesstest"
	"github.com/slicer-project/slicer/assignment/access/enforce"
	"github.com/slicer-project/slicer/assignment/store"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

const (
	adminID   = "spiffe://corp/admin"
	planeID   = "spiffe://corp/plane/d1"
	teamID    = "spiffe://corp/team/cache" // may configure jobs without access whose name it ends in
	auditorID = "spiffe://corp/auditor"    // may read jobs without access
	readerID  = "spiffe://corp/reader"
	ordererID = "spiffe://corp/orderer"
	ownerID   = "spiffe://corp/owner"
	strangeID = "spiffe://corp/stranger"

	testPolicy = `
plane: ["spiffe://corp/plane/*"]
admin: [spiffe://corp/admin]
jobs: {configure: ["spiffe://corp/team/{job}", "spiffe://corp/many"], read: [spiffe://corp/auditor]}
bounds: {default: {jobs: 2}}
`
)

// lines is a log to read while it is written.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) with(words ...string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.b.String()) {
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
			found = append(found, line)
		}
	}
	return found
}

// guarded is an assigner with a policy, behind TLS.
type guarded struct {
	*node
	authority *accesstest.Authority
	rights    *enforce.Rights
	at        string
	log       *lines
	store     *faulty
}

func startGuarded(t *testing.T, policy string) *guarded {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &guarded{authority: accesstest.New(t), at: lis.Addr().String(), log: &lines{}}
	log := slog.New(slog.NewTextHandler(g.log, nil))
	g.rights = accesstest.Rights(t, policy, log)
	g.store = newFaulty(openPebble(t))
	a, err := New(Config{ID: "a1", Address: "127.0.0.1:1", Stores: []NamedStore{{Backend: g.store}}, Rights: g.rights, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	g.node = &node{Assigner: a, t: t, server: grpc.NewServer(append(ServerOptions(), grpc.Creds(g.authority.Server(planeID)))...), served: make(chan struct{})}
	a.Register(g.server)
	go func() {
		defer close(g.served)
		_ = g.server.Serve(lis)
	}()
	g.conn = g.dial(planeID)
	g.admin = slicerv1.NewAdminServiceClient(g.conn)
	t.Cleanup(g.stop)
	return g
}

func (g *guarded) dial(id string) *grpc.ClientConn {
	g.t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+g.at, grpc.WithTransportCredentials(g.authority.Client(id)))
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { conn.Close() })
	return conn
}

func (g *guarded) as(id string) slicerv1.AdminServiceClient {
	g.t.Helper()
	return slicerv1.NewAdminServiceClient(g.dial(id))
}

// private is a job that says itself who may do what.
func private(name string) *slicerv1.JobConfig {
	return &slicerv1.JobConfig{Name: name, Access: &slicerv1.Access{
		Own: []string{ownerID}, Read: []string{readerID}, Order: []string{ordererID}, Configure: []string{teamID},
	}}
}

func refused(t *testing.T, err error, words string) {
	t.Helper()
	if said, advice, _ := strings.Cut(status.Convert(err).Message(), ": "); status.Code(err) != codes.PermissionDenied || said+": "+advice != words && said != words {
		t.Errorf("%v, want PERMISSION_DENIED: %s", err, words)
	}
}

// Each call asks for its verb, of the job's own access.
func TestRightsOfCalls(t *testing.T) {
	t.Parallel()
	g := startGuarded(t, testPolicy)
	ctx := t.Context()
	if _, err := g.as(adminID).PutJob(ctx, &slicerv1.PutJobRequest{Config: private("cache")}); err != nil {
		t.Fatal(err)
	}
	admin := map[string]slicerv1.AdminServiceClient{}
	all := []string{adminID, planeID, teamID, ordererID, readerID, ownerID, auditorID, strangeID, accesstest.Nobody}
	for _, id := range all {
		admin[id] = g.as(id)
	}
	read := []string{adminID, planeID, teamID, ordererID, readerID}
	order := []string{adminID, ordererID}
	for _, call := range []struct {
		name, verb string
		may        []string
		f          func(c slicerv1.AdminServiceClient) error
	}{
		{"GetJob", "read", read, func(c slicerv1.AdminServiceClient) error {
			_, err := c.GetJob(ctx, &slicerv1.GetJobRequest{Name: "cache"})
			return err
		}},
		{"InspectJob", "read", read, func(c slicerv1.AdminServiceClient) error {
			_, err := c.InspectJob(ctx, &slicerv1.InspectJobRequest{Job: "cache"})
			return err
		}},
		{"GetHistory", "read", read, func(c slicerv1.AdminServiceClient) error {
			_, err := c.GetHistory(ctx, &slicerv1.GetHistoryRequest{Job: "cache"})
			return err
		}},
		{"ExplainKey", "read", read, func(c slicerv1.AdminServiceClient) error {
			_, err := c.ExplainKey(ctx, &slicerv1.ExplainKeyRequest{Job: "cache"})
			return err
		}},
		{"CheckAccess", "read", read, func(c slicerv1.AdminServiceClient) error {
			_, err := c.CheckAccess(ctx, &slicerv1.CheckAccessRequest{Job: "cache", Identity: "spiffe://corp/other", Verb: "own"})
			return err
		}},
		{"DrainTask", "order", order, func(c slicerv1.AdminServiceClient) error {
			_, err := c.DrainTask(ctx, &slicerv1.DrainTaskRequest{Job: "cache", Task: "t"})
			return err
		}},
		{"GiveOrder", "order", order, func(c slicerv1.AdminServiceClient) error {
			_, err := c.GiveOrder(ctx, &slicerv1.GiveOrderRequest{Job: "cache", Who: "x", Order: &slicerv1.GiveOrderRequest_Include{Include: &slicerv1.IncludeOrder{Task: "t"}}})
			return err
		}},
		{"PutJob", "configure", []string{adminID, teamID}, func(c slicerv1.AdminServiceClient) error {
			_, err := c.PutJob(ctx, &slicerv1.PutJobRequest{Config: private("cache")})
			return err
		}},
		// Of a version that is not stored: that is not told before.
		{"PutJob of a version", "configure", []string{adminID, teamID}, func(c slicerv1.AdminServiceClient) error {
			_, err := c.PutJob(ctx, &slicerv1.PutJobRequest{Config: private("cache"), ExpectedVersion: 99})
			return err
		}},
		{"DeleteJob", "configure", []string{adminID, teamID}, func(c slicerv1.AdminServiceClient) error {
			_, err := c.DeleteJob(ctx, &slicerv1.DeleteJobRequest{Name: "cache"})
			if err == nil {
				_, err = g.as(adminID).PutJob(ctx, &slicerv1.PutJobRequest{Config: private("cache")})
			}
			return err
		}},
	} {
		for _, id := range all {
			err := call.f(admin[id])
			name := id
			if id == accesstest.Nobody {
				name = "anonymous"
			}
			if !slices.Contains(call.may, id) {
				refused(t, err, fmt.Sprintf("identity %s may not %s job cache", name, call.verb))
			} else if code := status.Code(err); code == codes.PermissionDenied || code == codes.InvalidArgument {
				t.Errorf("%s as %s: %v", call.name, id, err)
			}
		}
	}
}

// Whether a job is there that a caller may not see is not told.
func TestUnknownIsNotTold(t *testing.T) {
	t.Parallel()
	g := startGuarded(t, testPolicy)
	ctx := t.Context()
	if _, err := g.as(adminID).PutJob(ctx, &slicerv1.PutJobRequest{Config: private("cache")}); err != nil {
		t.Fatal(err)
	}
	calls := map[string]func(c slicerv1.AdminServiceClient, job string) error{
		"get": func(c slicerv1.AdminServiceClient, job string) error {
			_, err := c.GetJob(ctx, &slicerv1.GetJobRequest{Name: job})
			return err
		},
		"inspect": func(c slicerv1.AdminServiceClient, job string) error {
			_, err := c.InspectJob(ctx, &slicerv1.InspectJobRequest{Job: job})
			return err
		},
		"slices": func(c slicerv1.AdminServiceClient, job string) error {
			_, err := c.InspectSlices(ctx, &slicerv1.InspectSlicesRequest{Job: job})
			return err
		},
		"history": func(c slicerv1.AdminServiceClient, job string) error {
			_, err := c.GetHistory(ctx, &slicerv1.GetHistoryRequest{Job: job})
			return err
		},
		"explain": func(c slicerv1.AdminServiceClient, job string) error {
			_, err := c.ExplainKey(ctx, &slicerv1.ExplainKeyRequest{Job: job})
			return err
		},
		"put a version": func(c slicerv1.AdminServiceClient, job string) error {
			_, err := c.PutJob(ctx, &slicerv1.PutJobRequest{Config: &slicerv1.JobConfig{Name: job}, ExpectedVersion: 3})
			return err
		},
		"delete": func(c slicerv1.AdminServiceClient, job string) error {
			_, err := c.DeleteJob(ctx, &slicerv1.DeleteJobRequest{Name: job})
			return err
		},
		"drain": func(c slicerv1.AdminServiceClient, job string) error {
			_, err := c.DrainTask(ctx, &slicerv1.DrainTaskRequest{Job: job, Task: "t"})
			return err
		},
		"check another": func(c slicerv1.AdminServiceClient, job string) error {
			_, err := c.CheckAccess(ctx, &slicerv1.CheckAccessRequest{Job: job, Identity: ownerID, Verb: "own"})
			return err
		},
	}
	stranger, auditor := g.as(strangeID), g.as(auditorID)
	for what, f := range calls {
		there, none := f(stranger, "cache"), f(stranger, "nosuch")
		if status.Code(there) != codes.PermissionDenied || status.Code(none) != codes.PermissionDenied ||
			strings.ReplaceAll(there.Error(), "cache", "J") != strings.ReplaceAll(none.Error(), "nosuch", "J") {
			t.Errorf("%s: %v; of a job that is not there %v", what, there, none)
		}
		reads := what != "put a version" && what != "delete" && what != "drain"
		if err := f(auditor, "nosuch"); reads && what != "check another" && status.Code(err) != codes.NotFound || !reads && status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s by one that may read all jobs: %v", what, err)
		}
	}
	// Nor is it told by the record's damage.
	g.store.fail(fmt.Errorf("job cache: %w", store.ErrCorrupt))
	for what, f := range calls {
		if err := f(stranger, "cache"); status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s of a job whose record is damaged: %v", what, err)
		}
	}
	for _, verb := range []string{"own", "read"} {
		for _, job := range []string{"cache", "nosuch"} { // whose record is damaged, too
			r, err := stranger.CheckAccess(ctx, &slicerv1.CheckAccessRequest{Job: job, Verb: verb})
			if err != nil || r.Allowed || r.NoJob {
				t.Errorf("a stranger about itself: %v, %v", r, err)
			}
		}
	}
	if err := calls["get"](g.as(adminID), "cache"); status.Code(err) != codes.DataLoss {
		t.Errorf("an administrator learns of a damaged record: %v", err)
	}
	if _, err := g.as(adminID).CheckAccess(ctx, &slicerv1.CheckAccessRequest{Job: "cache", Verb: "own"}); status.Code(err) != codes.DataLoss {
		t.Errorf("an administrator asks of a damaged record: %v", err)
	}
	g.store.fail(nil)
	// Nor by the way that a refusal takes: that of a job in memory looks into the store as
	// well, which shows when that is down.
	d := g.attach("d1")
	d.want(&slicerv1.Want{Job: "cache"})
	d.wait("that the job is known", func() bool { return d.statuses["cache"] != nil })
	g.store.fail(fmt.Errorf("%w: it is down", store.ErrUnavailable))
	for what, f := range calls {
		if there, none := f(stranger, "cache"), f(stranger, "nosuch"); status.Code(there) != codes.Unavailable || status.Code(none) != codes.Unavailable {
			t.Errorf("%s while the store is down: %v; of a job that is not there %v", what, there, none)
		}
	}
	for _, what := range []string{"inspect", "slices"} {
		if err := calls[what](g.as(readerID), "cache"); err != nil {
			t.Errorf("%s by a reader while the store is down: %v", what, err)
		}
	}
}

// One who comes to configure a job that it may not even read is told of what it came for.
func TestReadToConfigure(t *testing.T) {
	t.Parallel()
	g := startGuarded(t, testPolicy)
	ctx := t.Context()
	if _, err := g.as(adminID).PutJob(ctx, &slicerv1.PutJobRequest{Config: private("cache")}); err != nil {
		t.Fatal(err)
	}
	for _, job := range []string{"cache", "nosuch"} {
		_, err := g.as(strangeID).GetJob(ctx, &slicerv1.GetJobRequest{Name: job, ToConfigure: true})
		refused(t, err, "identity spiffe://corp/stranger may not configure job "+job)
	}
	if n := len(g.log.with("audit=refused", "verb=configure", "identity="+strangeID)); n != 2 {
		t.Errorf("%d lines about the refusals", n)
	}
	for _, id := range []string{readerID, teamID} {
		if _, err := g.as(id).GetJob(ctx, &slicerv1.GetJobRequest{Name: "cache", ToConfigure: true}); err != nil {
			t.Errorf("%s reads: %v", id, err)
		}
	}
	if _, err := g.as(auditorID).GetJob(ctx, &slicerv1.GetJobRequest{Name: "nosuch", ToConfigure: true}); status.Code(err) != codes.NotFound {
		t.Error(err)
	}
}

// Lists have what the caller may read, and no error for the rest.
func TestListsByRights(t *testing.T) {
	t.Parallel()
	g := startGuarded(t, testPolicy)
	ctx := t.Context()
	for _, cfg := range []*slicerv1.JobConfig{private("cache"), {Name: "open"}} {
		if _, err := g.as(adminID).PutJob(ctx, &slicerv1.PutJobRequest{Config: cfg}); err != nil {
			t.Fatal(err)
		}
	}
	d := g.attach("d1")
	d.wait("that both jobs are known", func() bool {
		for _, p := range d.prefs {
			return len(p.Jobs) == 2
		}
		return false
	})
	for id, want := range map[string]string{adminID: "cache open", planeID: "cache open", readerID: "cache", teamID: "cache", auditorID: "open", strangeID: "", accesstest.Nobody: ""} {
		resp, err := g.as(id).ListJobs(ctx, &slicerv1.ListJobsRequest{})
		var got []string
		for _, j := range resp.GetJobs() {
			got = append(got, j.Config.Name)
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("jobs for %s: %v, %v; want %s", id, got, err, want)
		}
		list, err := g.as(id).ListAssigners(ctx, &slicerv1.ListAssignersRequest{})
		if id == accesstest.Nobody {
			refused(t, err, "identity anonymous may not call ListAssigners, which takes a certificate with a name")
			continue
		}
		got = nil
		for _, j := range list.GetJobs() {
			got = append(got, j.Job)
		}
		if n := len(strings.Fields(want)); err == nil && (len(list.Assigners) != 1 || int(list.Assigners[0].Jobs) != n) {
			t.Errorf("assigners for %s: %v; want one with %d jobs", id, list.Assigners, n)
		}
		if err != nil || strings.Join(got, " ") != want || list.AssignerId != "a1" || len(list.Distributors) != 1 {
			t.Errorf("assigners for %s: %v, %v; want jobs %s", id, list, err, want)
		}
	}
}

// Who may create a job is for the policy to say, and not for the config that is put.
func TestRightsToCreate(t *testing.T) {
	t.Parallel()
	g := startGuarded(t, testPolicy)
	ctx := t.Context()
	put := func(id string, cfg *slicerv1.JobConfig) error {
		_, err := g.as(id).PutJob(ctx, &slicerv1.PutJobRequest{Config: cfg})
		return err
	}
	mine := private("mine")
	mine.Access.Configure = []string{strangeID}
	refused(t, put(strangeID, mine), "identity spiffe://corp/stranger may not configure job mine")
	if err := put(teamID, private("cache")); err != nil {
		t.Fatal(err)
	}
	job, err := g.as(adminID).GetJob(ctx, &slicerv1.GetJobRequest{Name: "cache"})
	if err != nil || job.Job.CreatedBy != teamID {
		t.Errorf("%v, %v; want it created by %s", job, err, teamID)
	}
	// One does not lock oneself out, be it by a slip of the hand.
	without := private("cache")
	without.Access.Configure = nil
	for _, cfg := range []*slicerv1.JobConfig{without, mine} {
		cfg.Name = "cache"
		err := put(teamID, cfg)
		if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), teamID) || !strings.Contains(err.Error(), "access.configure") {
			t.Errorf("%v is put: %v", cfg, err)
		}
	}
	other := private("cache")
	other.Zone = "z"
	if err := put(teamID, other); err != nil {
		t.Errorf("another zone: %v", err)
	}
	if err := put(teamID, &slicerv1.JobConfig{Name: "cache"}); err != nil {
		t.Errorf("no access, so that the policy's holds: %v", err)
	}
	if err := put(adminID, mine); err != nil {
		t.Errorf("an administrator: %v", err)
	}
	refused(t, put(teamID, other), "identity spiffe://corp/team/cache may not configure job cache")
	if err := put(strangeID, mine); err != nil {
		t.Errorf("the new owner: %v", err)
	}
	if job, err = g.as(adminID).GetJob(ctx, &slicerv1.GetJobRequest{Name: "cache"}); err != nil || job.Job.CreatedBy != teamID {
		t.Errorf("%v, %v; want it created by %s still", job, err, teamID)
	}
	// A new config that its creator could not change is refused, too.
	if err := put("spiffe://corp/team/new", private("new")); status.Code(err) != codes.FailedPrecondition {
		t.Error(err)
	}
}

// An identity creates so many jobs, also when it tries several at once.
func TestBoundOfJobs(t *testing.T) {
	t.Parallel()
	g := startGuarded(t, testPolicy)
	ctx := t.Context()
	const many = "spiffe://corp/many"
	c := g.as(many)
	const tries = 8
	errs := make([]error, tries)
	var wg sync.WaitGroup
	for i := range tries {
		wg.Go(func() {
			_, errs[i] = c.PutJob(ctx, &slicerv1.PutJobRequest{Config: &slicerv1.JobConfig{Name: fmt.Sprint("job-", i)}})
		})
	}
	wg.Wait()
	made := ""
	for i, err := range errs {
		switch {
		case err == nil:
			made += fmt.Sprint(i)
		case status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "has created 2 jobs, and may have 2") || !strings.Contains(err.Error(), "bounds.jobs"):
			t.Error(err)
		}
	}
	if len(made) != 2 {
		t.Fatalf("jobs %q were created, want 2", made)
	}
	// What there is may be changed, and one that is deleted makes room.
	name := "job-" + made[:1]
	if _, err := c.PutJob(ctx, &slicerv1.PutJobRequest{Config: &slicerv1.JobConfig{Name: name, Zone: "z"}}); err != nil {
		t.Error(err)
	}
	if _, err := c.DeleteJob(ctx, &slicerv1.DeleteJobRequest{Name: name}); err != nil {
		t.Error(err)
	}
	// To ask whether there is room takes none.
	check := func() error {
		_, err := c.CheckJob(ctx, &slicerv1.CheckJobRequest{Config: &slicerv1.JobConfig{Name: "again"}, ExpectedVersion: -1})
		return err
	}
	for range 10 {
		if err := check(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.PutJob(ctx, &slicerv1.PutJobRequest{Config: &slicerv1.JobConfig{Name: "again"}}); err != nil {
		t.Error(err)
	}
	// But not for as many as it likes: what is deleted leaves something behind.
	var err error
	for i := 0; i < 10 && err == nil; i++ {
		if _, err = c.DeleteJob(ctx, &slicerv1.DeleteJobRequest{Name: "again"}); err == nil {
			_, err = c.PutJob(ctx, &slicerv1.PutJobRequest{Config: &slicerv1.JobConfig{Name: "again"}})
		}
	}
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "created jobs too fast") || !strings.Contains(err.Error(), "4 at once are allowed and 2 an hour") {
		t.Errorf("created and deleted again and again: %v", err)
	}
	if refusal := check(); status.Code(refusal) != codes.ResourceExhausted || !strings.Contains(refusal.Error(), "created jobs too fast") {
		t.Errorf("CheckJob, when jobs are created too fast: %v", refusal)
	}
	// Another identity has its own; an administrator has no bound.
	if _, err := g.as("spiffe://corp/team/t").PutJob(ctx, &slicerv1.PutJobRequest{Config: &slicerv1.JobConfig{Name: "t"}}); err != nil {
		t.Error(err)
	}
	for i := range 4 {
		if _, err := g.as(adminID).PutJob(ctx, &slicerv1.PutJobRequest{Config: &slicerv1.JobConfig{Name: fmt.Sprint("admin-", i)}}); err != nil {
			t.Error(err)
		}
	}
}

// The history and the log say who did what by certificate; what callers say of themselves is
// a comment, and only the control plane passes on for others.
func TestWhoDidIt(t *testing.T) {
	t.Parallel()
	g := startGuarded(t, testPolicy)
	ctx := t.Context()
	distributor := slicerv1.NewAdminServiceClient(g.conn)
	forwarded := enforce.Forward(ctx, enforce.Caller{Identity: teamID})
	if _, err := distributor.PutJob(forwarded, &slicerv1.PutJobRequest{Config: private("cache"), Who: "ceo", Why: "new", Peer: "10.1.1.1:7"}); err != nil {
		t.Fatal(err)
	}
	// A peer that is not the control plane's passes for no other, whatever it says.
	liar := g.as(strangeID)
	_, err := liar.DeleteJob(enforce.Forward(ctx, enforce.Caller{Identity: adminID}), &slicerv1.DeleteJobRequest{Name: "cache"})
	refused(t, err, "identity spiffe://corp/stranger may not configure job cache")
	// Nor does the control plane itself configure anything.
	_, err = distributor.DeleteJob(ctx, &slicerv1.DeleteJobRequest{Name: "cache"})
	refused(t, err, "identity spiffe://corp/plane/d1 may not configure job cache")
	// The log says of what was refused whence it came, as of what was done.
	_, err = distributor.DeleteJob(enforce.Forward(ctx, enforce.Caller{Identity: ownerID, Address: "10.2.2.2:7"}), &slicerv1.DeleteJobRequest{Name: "cache"})
	refused(t, err, "identity spiffe://corp/owner may not configure job cache")
	if n := len(g.log.with("audit=refused", "identity="+ownerID, `peer="10.2.2.2:7 via 127.0.0.1:`)); n != 1 {
		t.Errorf("%d lines about what was refused by way of a Distributor:\n%s", n, strings.Join(g.log.with("audit=refused"), ""))
	}
	freeze := &slicerv1.GiveOrderRequest{Job: "cache", Who: "root@bastion", Why: "too hot", Peer: "10.9.9.9:9", Order: &slicerv1.GiveOrderRequest_Freeze{Freeze: &slicerv1.FreezeOrder{}}}
	if _, err := g.as(ordererID).GiveOrder(ctx, freeze); err != nil {
		t.Fatal(err)
	}
	again, err := g.as(adminID).GiveOrder(ctx, freeze)
	if err != nil || again.Note != "takes the place of the freeze by "+ordererID {
		t.Errorf("%v, %v", again, err)
	}
	if _, err := g.as(ordererID).GiveOrder(ctx, freeze); err != nil {
		t.Fatal(err)
	}
	got, err := g.as(readerID).GetHistory(ctx, &slicerv1.GetHistoryRequest{Job: "cache"})
	if err != nil || len(got.Entries) != 4 {
		t.Fatalf("history %v, %v", got, err)
	}
	for i, want := range []struct{ identity, who, peer string }{{teamID, "ceo", "10.1.1.1:7 via 127.0.0.1:"}, {ordererID, "root@bastion", "127.0.0.1:"}} {
		if s := got.Entries[i].Stamp; s.Identity != want.identity || s.Who != want.who || !strings.HasPrefix(s.Peer, want.peer) {
			t.Errorf("entry %d is by %v, want %v", i, s, want)
		}
	}
	if i, err := g.as(readerID).InspectJob(ctx, &slicerv1.InspectJobRequest{Job: "cache"}); err != nil || i.GetOverrides().GetFreeze().GetStamp().GetIdentity() != ordererID {
		t.Errorf("inspect %v, %v", i, err)
	}
	if _, err := g.as(teamID).DeleteJob(ctx, &slicerv1.DeleteJobRequest{Name: "cache", Who: "op", Why: "over"}); err != nil {
		t.Fatal(err)
	}
	for _, words := range [][]string{
		{"identity=" + teamID, `peer="10.1.1.1:7 via 127.0.0.1:`, "action=\"create job: ", "comment=ceo", "reason=new", "created=true"},
		{"identity=" + adminID, "peer=127.0.0.1:", "action=freeze", "comment=root@bastion", `reason="too hot"`},
		{"identity=" + teamID, `action="delete job"`, "comment=op", "reason=over"},
	} {
		if n := len(g.log.with(append(words, "audit=changed", "job=cache")...)); n != 1 {
			t.Errorf("%d lines with %q:\n%s", n, words, strings.Join(g.log.with("audit="), ""))
		}
	}
	if n := len(g.log.with("audit=refused", "identity="+strangeID, "verb=configure", "job=cache")); n != 1 {
		t.Errorf("%d lines about the refusal", n)
	}
}

// CheckAccess answers about the caller itself, and about others to those that may read.
func TestCheckAccess(t *testing.T) {
	t.Parallel()
	g := startGuarded(t, testPolicy)
	ctx := t.Context()
	if _, err := g.as(adminID).PutJob(ctx, &slicerv1.PutJobRequest{Config: private("cache")}); err != nil {
		t.Fatal(err)
	}
	check := func(as context.Context, id string, m *slicerv1.CheckAccessRequest) (string, error) {
		r, err := g.as(id).CheckAccess(as, m)
		none := ""
		if r.GetNoJob() {
			none = " (no job)"
		}
		return fmt.Sprintf("%v %s %s%s", r.GetAllowed(), r.GetIdentity(), r.GetRule(), none), err
	}
	for _, x := range []struct {
		as   string
		m    *slicerv1.CheckAccessRequest
		want string
	}{
		{strangeID, &slicerv1.CheckAccessRequest{Job: "cache", Verb: "own"}, "false spiffe://corp/stranger "},
		{strangeID, &slicerv1.CheckAccessRequest{Job: "nosuch", Verb: "own"}, "false spiffe://corp/stranger "},
		{auditorID, &slicerv1.CheckAccessRequest{Job: "nosuch", Verb: "own"}, "false spiffe://corp/auditor  (no job)"},
		{teamID, &slicerv1.CheckAccessRequest{Job: "new", Verb: "configure"}, "false spiffe://corp/team/cache "},
		{"spiffe://corp/team/new", &slicerv1.CheckAccessRequest{Job: "new", Verb: "configure"}, "true spiffe://corp/team/new  (no job)"},
		// What the config may come to say; without access the policy decides.
		{teamID, &slicerv1.CheckAccessRequest{Job: "cache", Verb: "configure", Access: &slicerv1.Access{Configure: []string{strangeID}}}, "false spiffe://corp/team/cache access of the job, no pattern"},
		{teamID, &slicerv1.CheckAccessRequest{Job: "cache", Verb: "configure", Access: &slicerv1.Access{}}, "true spiffe://corp/team/cache "},
		{strangeID, &slicerv1.CheckAccessRequest{Job: "cache", Verb: "configure", Access: &slicerv1.Access{Configure: []string{strangeID}}}, "true spiffe://corp/stranger "},
		{strangeID, &slicerv1.CheckAccessRequest{Job: "nosuch", Verb: "configure", Access: &slicerv1.Access{Configure: []string{strangeID}}}, "true spiffe://corp/stranger "},
		{adminID, &slicerv1.CheckAccessRequest{Job: "cache", Verb: "configure", Access: &slicerv1.Access{}}, "true spiffe://corp/admin policy admin: spiffe://corp/admin"},
		{accesstest.Nobody, &slicerv1.CheckAccessRequest{Job: "cache", Verb: "watch"}, "false anonymous "},
		{ownerID, &slicerv1.CheckAccessRequest{Job: "cache", Verb: "watch"}, "true spiffe://corp/owner "},
		{readerID, &slicerv1.CheckAccessRequest{Job: "cache", Verb: "own", Identity: ownerID, Task: "t"}, "true spiffe://corp/owner access of the job, own: spiffe://corp/owner"},
		{readerID, &slicerv1.CheckAccessRequest{Job: "cache", Verb: "own", Identity: adminID}, "true spiffe://corp/admin "},
		{readerID, &slicerv1.CheckAccessRequest{Job: "cache", Verb: "order"}, "false spiffe://corp/reader access of the job, no pattern"},
		{adminID, &slicerv1.CheckAccessRequest{Job: "cache", Verb: "own", Identity: ownerID}, "true spiffe://corp/owner access of the job, own: spiffe://corp/owner"},
		{adminID, &slicerv1.CheckAccessRequest{Job: "cache", Verb: "read", Identity: auditorID}, "false spiffe://corp/auditor access of the job, no pattern"},
		{adminID, &slicerv1.CheckAccessRequest{Job: "nosuch", Verb: "own", Identity: auditorID}, "false spiffe://corp/auditor policy jobs, no pattern (no job)"},
		{adminID, &slicerv1.CheckAccessRequest{Job: "new", Verb: "configure", Identity: "spiffe://corp/team/new"}, "true spiffe://corp/team/new policy jobs, configure: spiffe://corp/team/{job} (no job)"},
	} {
		got, err := check(ctx, x.as, x.m)
		if err != nil || got != x.want {
			t.Errorf("%v as %s: %s, %v; want %s", x.m, x.as, got, err, x.want)
		}
	}
	for _, m := range []*slicerv1.CheckAccessRequest{
		{Job: "cache", Verb: "plane"}, {Job: "cache"}, {Job: "a/b", Verb: "own"}, {Job: "cache", Verb: "own", Identity: "A b"},
		{Job: "cache", Verb: "read", Task: "t"}, {Job: "cache", Verb: "own", Task: "a b"},
		{Job: "cache", Verb: "own", Access: &slicerv1.Access{Own: []string{"a b"}}},
	} {
		if _, err := check(ctx, adminID, m); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v: %v", m, err)
		}
	}
}
