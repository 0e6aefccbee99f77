package access

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/slicer-project/slicer/assignment/access/accesstest"
	"github.com/slicer-project/slicer/assignment/waittest"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"github.com/slicer-project/slicer/test/kit/process"
)

func TestMain(m *testing.M) { os.Exit(process.Main(m)) }

// limit bounds every wait; nothing is asserted on it.
const limit = waittest.Patience

// Identities. Each of team cache has one right to its jobs.
const (
	owner      = "spiffe://corp/cache/task/t1"
	watcher    = "spiffe://corp/cache/watcher"
	reader     = "spiffe://corp/cache/reader"
	orderer    = "spiffe://corp/cache/orderer"
	configurer = "spiffe://corp/cache/configurer"
	other      = "spiffe://corp/other/team"
	plane      = "spiffe://corp/slicer/part"
	admin      = "spiffe://corp/sre"
	nameless   = "" // of a certificate without a name: anonymous
)

const policy = `
plane: ["spiffe://corp/slicer/*"]
admin: [spiffe://corp/sre]
`

// The jobs of team cache, of the other team, and one of everybody's.
const (
	cacheJob  = "cache"
	ledgerJob = "ledger" // in consistent mode
	otherJob  = "other"
	openJob   = "open" // in consistent mode
)

// bed is every program with a certificate of the control plane's, and two stores.
type bed struct {
	t         *testing.T
	authority *accesstest.Authority
	dir       string
	policy    []string // flags
	at        map[string]string
	processes map[string]*process.Process
	conns     map[[2]string]*grpc.ClientConn
	files     map[string]accesstest.Files // by identity, nil unless they will be replaced
}

// issue writes a certificate into files, the same ones for the same identity.
func (b *bed) issue(identity string) accesstest.Files {
	b.t.Helper()
	if f, ok := b.files[identity]; ok {
		return f
	}
	f := b.authority.Files(identity)
	if b.files != nil {
		b.files[identity] = f
	}
	return f
}

// Where programs serve.
const (
	atAssigner = "assigner"
	atRival    = "another assigner"
	atFirst    = "distributor"
	atOther    = "another distributor"
	atSecond   = "distributor of the second tier"
	atBackup   = "backupdist"
	atServe    = "slicer serve"
	atServed   = "slicer serve, --backup-listen"
	atEtcd     = "etcd"
	atPeer     = "etcd's peers"
)

// newBed builds the programs and chooses where they serve.
func newBed(t *testing.T) *bed {
	t.Helper()
	process.BuildSlicer(t)
	process.Build(t, "slicer", "github.com/slicer-project/slicer/cmd/slicer")
	b := &bed{t: t, authority: accesstest.New(t), dir: t.TempDir(), at: map[string]string{}, processes: map[string]*process.Process{}, conns: map[[2]string]*grpc.ClientConn{}}
	names := []string{atAssigner, atRival, atFirst, atOther, atSecond, atBackup, atServe, atServed, atEtcd, atPeer}
	for i, addr := range process.FreePorts(t, len(names)) {
		b.at[names[i]] = addr
	}
	file := filepath.Join(b.dir, "policy.yaml")
	if err := os.WriteFile(file, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	b.policy = []string{"--policy=" + file}
	process.Etcd{Dir: b.dir, Clients: []string{b.at[atEtcd]}, Peers: []string{b.at[atPeer]}}.Start(t)
	return b
}

// start starts a program, in place of the one that serves there.
func (b *bed) start(where string, flags ...string) {
	b.t.Helper()
	if p := b.processes[where]; p != nil {
		p.End(limit)
	}
	store := "--store=etcd://" + b.at[atEtcd] + "/slicer"
	program := map[string][]string{
		atAssigner: {"assigner", store, "--serve-leases"},
		atRival:    {"assigner", store},
		atFirst:    {"distributor", "--assigners=" + b.at[atAssigner], "--serve-distributors"},
		atOther:    {"distributor", "--assigners=" + b.at[atAssigner]},
		atSecond:   {"distributor", "--upstreams=" + b.at[atFirst]},
		atBackup:   {"backupdist", store},
		atServe:    {"slicer", "serve", "--store=pebble://" + filepath.Join(b.dir, "pebble"), "--backup-listen=" + b.at[atServed]},
	}[where]
	f := b.issue(plane)
	argv := append([]string{process.Program(program[0])}, program[1:]...)
	argv = append(argv, "--listen="+b.at[where], "--http=", "--tls-cert="+f.Cert, "--tls-key="+f.Key, "--tls-ca="+f.CA)
	b.processes[where] = process.Start(b.t, where, nil, append(argv, flags...)...)
}

func (b *bed) dial(where, identity string) *grpc.ClientConn {
	b.t.Helper()
	key := [2]string{where, identity}
	if b.conns[key] == nil {
		cc, err := grpc.NewClient("passthrough:///"+b.at[where], b.credentials(identity)...)
		if err != nil {
			b.t.Fatal(err)
		}
		b.t.Cleanup(func() { cc.Close() })
		b.conns[key] = cc
	}
	return b.conns[key]
}

func (b *bed) admin(where string) slicerv1.AdminServiceClient {
	return slicerv1.NewAdminServiceClient(b.dial(where, admin))
}

// put makes jobs, once it can be done.
func (b *bed) put(where string, configs ...*slicerv1.JobConfig) {
	b.t.Helper()
	for _, c := range configs {
		process.Eventually(b.t, limit, "job "+c.GetName(), func() error {
			ctx, cancel := context.WithTimeout(b.t.Context(), 5*time.Second)
			defer cancel()
			_, err := b.admin(where).PutJob(ctx, &slicerv1.PutJobRequest{Config: c})
			return err
		})
	}
}

func cacheAccess() *slicerv1.Access {
	return &slicerv1.Access{Own: []string{"spiffe://corp/cache/task/{task}"}, Watch: []string{watcher}, Read: []string{reader}, Order: []string{orderer}, Configure: []string{configurer}}
}

// configs are those of the jobs.
func configs() []*slicerv1.JobConfig {
	team := []string{"spiffe://corp/other/**"}
	consistent := func(name string, a *slicerv1.Access) *slicerv1.JobConfig {
		return &slicerv1.JobConfig{Name: name, Mode: slicerv1.Mode_MODE_CONSISTENT, Access: a}
	}
	return []*slicerv1.JobConfig{
		{Name: cacheJob, Access: cacheAccess()},
		consistent(ledgerJob, cacheAccess()),
		{Name: otherJob, Access: &slicerv1.Access{Own: team, Read: team, Order: team, Configure: team}},
		consistent(openJob, &slicerv1.Access{Own: []string{"**"}}),
	}
}

// everything starts all programs with the policy, and makes the jobs.
func everything(t *testing.T) *bed {
	t.Helper()
	b := newBed(t)
	for _, where := range []string{atAssigner, atFirst, atSecond, atBackup, atServe} {
		b.start(where, b.policy...)
	}
	for _, where := range []string{atSecond, atServe} {
		b.put(where, configs()...)
	}
	for _, where := range []string{atBackup, atServed} {
		process.Eventually(t, limit, where, func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			r, err := b.admin(where).ListJobs(ctx, &slicerv1.ListJobsRequest{})
			if err == nil && len(r.GetJobs()) != len(configs()) {
				err = fmt.Errorf("%d jobs", len(r.GetJobs()))
			}
			return err
		})
	}
	return b
}

var errStays = errors.New("it goes on")

// begun is how a stream stands a while after it has begun: errStays if it goes on. The while is two
// seconds in which the machine did not keep this from running.
func begun(recv func() error) error {
	done := make(chan error, 1)
	go func() { done <- recv() }()
	for end := time.Now().Add(limit); ; {
		stop := waittest.Starving()
		select {
		case err := <-done:
			stop()
			return err
		case <-time.After(2 * time.Second):
			if starved := stop(); starved < time.Second/2 || time.Now().After(end) {
				return errStays
			}
		}
	}
}
