package attack

import (
	"context"
	"crypto/tls"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"

	"github.com/slicer-project/slicer/assignment/access/accesstest"
	"github.com/slicer-project/slicer/assignment/certs"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// Who connects over TLS, and what the policy and the jobs let them do.
const (
	planeID  = "spiffe://corp/slicer/all"
	adminID  = "spiffe://corp/sre"
	clerkID  = "spiffe://corp/web/clerk"
	insider  = "spiffe://corp/web/insider"   // may watch the honest job
	stranger = "spiffe://corp/other/outside" // may own another job, and do nothing with the honest one

	policyText = "plane: [" + planeID + "]\nadmin: [" + adminID + "]\nbounds: {default: {tasks: 500}}\n"

	otherJob = "other"
	maxOther = 400 // tasks of it; the policy lets one identity have a few more connected
)

func taskID(name string) string { return "spiffe://corp/web/task/" + name }

// overTLS are the attacks of those who have a certificate of the authority.
var overTLS = []struct{ identity, name string }{
	{stranger, "10000-unknown-names-a-second"},
	{stranger, "300-silent-connections-a-second"},
	{stranger, "300-stuck-handshakes-a-second"},
	{stranger, "20000-streams-on-one-connection"},
	{insider, "20000-streams-on-one-connection"},
	{stranger, "2000-unread-scrapes"},
	{stranger, "100-joins-a-second-of-3-names"},
	{stranger, ofOneOwner},
	{insider, "a-clerk-of-tomorrow"},
}

// secure makes an authority, certificates and a policy, and returns a server's flags.
func (t *target) secure(attacker string) []string {
	t.authority = accesstest.New(t.b)
	t.tls, t.attacker = t.authority.ClientTLS(clerkID), t.authority.Files(attacker)
	policy := filepath.Join(t.b.TempDir(), "policy.yaml")
	if err := os.WriteFile(policy, []byte(policyText), 0o600); err != nil {
		t.b.Fatal(err)
	}
	f := t.authority.Files(planeID)
	return []string{"--tls-cert", f.Cert, "--tls-key", f.Key, "--tls-ca", f.CA, "--policy", policy, "--http-tls", "mutual"}
}

// as is the certificate of an identity, nil in plain text.
func (t *target) as(identity string) *tls.Config {
	if t.authority == nil {
		return nil
	}
	return t.authority.ClientTLS(identity)
}

func (t *target) admin() *grpc.ClientConn { return dial(honest, t.distributor, t.as(adminID)) }

// present reads the certificate that an attacker has, if it has one.
func (t *target) present(f accesstest.Files) error {
	if f.Cert == "" {
		return nil
	}
	s, err := certs.New(certs.Config{Cert: f.Cert, Key: f.Key, CA: f.CA})
	if err != nil {
		return err
	}
	t.tls = s.ClientConfig()
	t.tls.ServerName = "127.0.0.1"
	return nil
}

// jobs are the honest one and another.
func (t *target) jobs() []*slicerv1.JobConfig {
	web, other := &slicerv1.JobConfig{Name: job}, &slicerv1.JobConfig{Name: otherJob, MaxTasks: maxOther}
	if t.tls != nil {
		web.Access = &slicerv1.Access{Own: []string{taskID("{task}")}, Watch: []string{"spiffe://corp/web/*"}}
		other.Access = &slicerv1.Access{Own: []string{"spiffe://corp/other/**"}}
	}
	return []*slicerv1.JobConfig{web, other}
}

// owned is a task of the other job, which joins again a second after it was refused.
func (t *target) owned(ctx context.Context, cc *grpc.ClientConn, name string) {
	for ctx.Err() == nil {
		s, err := watch(ctx, cc, &slicerv1.Hello{Job: otherJob, Role: slicerv1.Role_ROLE_SLICELET, ClientId: name, Task: taskOf(name, 1),
			Report: &slicerv1.Report{Sequence: 1, State: slicerv1.TaskState_TASK_STATE_RUNNING}})
		for err == nil {
			_, err = s.Recv()
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// bounded wants that no more tasks of the other job live than may. Those that were dead when others
// took their places are listed too.
func (t *target) bounded() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	cc := t.admin()
	defer cc.Close()
	r, err := slicerv1.NewAdminServiceClient(cc).InspectJob(ctx, &slicerv1.InspectJobRequest{Job: otherJob})
	if err != nil {
		t.b.Error(err)
		return
	}
	n := 0
	for _, x := range r.GetTasks() {
		if x.GetTask().GetState() != slicerv1.TaskState_TASK_STATE_DEAD {
			n++
		}
	}
	t.b.ReportMetric(float64(n), "other-tasks")
	if n > maxOther {
		t.b.Errorf("job %s has %d tasks, at most %d are allowed", otherJob, n, maxOther)
	}
}
