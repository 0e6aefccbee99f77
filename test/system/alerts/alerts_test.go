package alerts

import (
	"context"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"github.com/slicer-project/slicer/test/kit/process"
)

// breakage is something that is broken and mended, and the alerts that it is to set off.
type breakage struct {
	what   string
	alerts []string
	// speed is how fast the rules' clock runs, at least: what is broken shows in real
	// time, and only what the rules wait for is passed quickly.
	speed       float64
	start, mend func(b *bed)
	// also are alerts that may fire beside those.
	also []string
}

var breakages = []breakage{
	{
		what: "an operator freezes the job, and one server's load grows tenfold", alerts: []string{"SlicerUneven", "SlicerFrozenByOrder"}, speed: 240,
		start: func(b *bed) {
			b.must(b.ctl("freeze", job, "--reason", "a test of alerts"))
			b.many.Signal(syscall.SIGUSR1)
		},
		mend: func(b *bed) {
			b.many.Signal(syscall.SIGUSR1)
			b.must(b.ctl("unfreeze", job, "--reason", "a test of alerts"))
		},
	},
	{
		what: "the Distributor is killed", alerts: []string{"SlicerNoAnswers", "SlicerOnBackup"}, speed: 60,
		start: func(b *bed) { b.distributor.Kill() }, mend: func(b *bed) { b.distributor.Restart() },
		also: []string{"SlicerNoDecisions", "SlicerFrozen", "SlicerTasksDie"},
	},
	{
		what: "both assigners are killed", alerts: []string{"SlicerNoDecisions", "SlicerDistributorDisconnected"}, speed: 40,
		start: func(b *bed) { each(b.assigners, (*process.Process).Kill) },
		mend:  func(b *bed) { each(b.assigners, (*process.Process).Restart) },
	},
	{
		what: "etcd has lost its quorum: two of three members are killed", alerts: []string{"SlicerStoreDown"}, speed: 30,
		start: func(b *bed) { each(b.etcds[:2], (*process.Process).Kill) },
		mend:  func(b *bed) { each(b.etcds[:2], (*process.Process).Restart) },
		also:  []string{"SlicerNoDecisions", "SlicerNoAnswers", "SlicerLeasesLost"},
	},
	{
		what: "both assigners stand still for 8 s", alerts: []string{"SlicerLeasesLost"}, speed: 60,
		start: func(b *bed) {
			each(b.assigners, (*process.Process).Stop)
			time.Sleep(8 * time.Second) // longer than --lease-ttl, and than etcd makes of it
			each(b.assigners, (*process.Process).Continue)
		},
		mend: func(*bed) {},
		also: []string{"SlicerNoDecisions", "SlicerDistributorDisconnected", "SlicerRegistrationDamaged"},
	},
	{
		what: "etcd is filled up to its quota", alerts: []string{"SlicerStoreReadOnly", "SlicerStoreFills"}, speed: 30,
		start: fill, mend: free, also: []string{"SlicerNoDecisions"},
	},
	{
		what: "the record of an assigner is overwritten five times", alerts: []string{"SlicerRegistrationDamaged"}, speed: 30,
		start: spoil, mend: func(*bed) {},
	},
	{
		what: "5 of 20 servers are killed", alerts: []string{"SlicerTasksDie"}, speed: 60,
		start: func(b *bed) { b.few.Kill() }, mend: func(b *bed) { b.few.Restart() },
	},
	{
		what: "15 of 20 servers are killed", alerts: []string{"SlicerFrozen"}, speed: 60,
		start: func(b *bed) { b.many.Kill() }, mend: func(b *bed) { b.many.Restart() }, also: []string{"SlicerTasksDie", "SlicerUneven"},
	},
	{
		what: "a clerk takes assignments and acknowledges none", alerts: []string{"SlicerSlowSubscribers"}, speed: 60,
		start: func(b *bed) { b.silence = b.silent() }, mend: func(b *bed) { b.silence() },
	},
	{
		what: "a certificate is renewed by one that ends in two days", alerts: []string{"SlicerCertificateExpires", "SlicerCertificateExpiresSoon"}, speed: 60,
		start: func(b *bed) { b.certify(2 * 24 * time.Hour) }, mend: func(b *bed) { b.certify(90 * 24 * time.Hour) },
	},
	{
		what: "a certificate's key is overwritten", alerts: []string{"SlicerCertificateStale"}, speed: 60,
		start: func(b *bed) {
			_, key := b.certify(90 * 24 * time.Hour)
			b.must(os.WriteFile(key, []byte("junk"), 0o600))
		},
		mend: func(b *bed) { b.certify(90 * 24 * time.Hour) },
	},
	{
		what: "a policy is replaced by one with an unknown field", alerts: []string{"SlicerPolicyStale"}, speed: 60,
		start: func(b *bed) { b.write("policy.yaml", "admins: [spiffe://corp/user/sre/ann]\n") },
		mend:  func(b *bed) { b.write("policy.yaml", goodPolicy) },
	},
	{
		what: "slicerproxy is told to read rules that are wrong", alerts: []string{"SlicerProxyRules"}, speed: 60,
		start: func(b *bed) {
			b.write("rules.yaml", "rules:\n- jobb: web\n")
			b.proxy.Signal(syscall.SIGHUP)
		},
		mend: func(b *bed) {
			b.write("rules.yaml", "rules:\n- job: web\n  key: {header: X-User}\n")
			b.proxy.Signal(syscall.SIGHUP)
		},
	},
	{
		what: "a server is asked for ten times what it can do", alerts: []string{"SlicerRefusesCritical", "SlicerOverloaded"}, speed: 60,
		start: func(b *bed) { b.busy.Signal(syscall.SIGUSR1) }, mend: func(b *bed) { b.busy.Signal(syscall.SIGUSR1) },
	},
	{
		what: "the assigners' clocks jump ahead by three days", alerts: []string{"SlicerClock"}, speed: 60,
		start: func(b *bed) { b.write("offset", "72h") }, mend: func(b *bed) { b.write("offset", "0s") },
	},
}

func each(ps []*process.Process, f func(*process.Process)) {
	for _, p := range ps {
		f(p)
	}
}

// fill writes to etcd until it takes no more.
func fill(b *bed) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	for i := 0; ; i++ {
		if _, err := b.etcd.Put(ctx, "/another", strings.Repeat("x", 1<<20)); err != nil {
			if i < 10 || !strings.Contains(err.Error(), "space exceeded") {
				b.Fatal(err)
			}
			return
		}
	}
}

// free does what the alert says is to be done.
func free(b *bed) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	now, err := b.etcd.Get(ctx, "x")
	b.must(err)
	_, err = b.etcd.Compact(ctx, now.Header.Revision, clientv3.WithCompactPhysical())
	b.must(err)
	for _, e := range b.etcdAddrs {
		_, err = b.etcd.Defragment(ctx, e)
		b.must(err)
	}
	_, err = b.etcd.AlarmDisarm(ctx, &clientv3.AlarmMember{})
	b.must(err)
}

// spoil overwrites the registration of an assigner, and waits until it is mended, again and
// again.
func spoil(b *bed) {
	b.Helper()
	const key = "/slicer/assigners/assigner-0"
	for range 5 {
		b.p.tick()
		_, err := b.etcd.Put(b.Context(), key, "junk")
		b.must(err)
		process.Eventually(b, 20*time.Second, "the registration is mended", func() error {
			resp, err := b.etcd.Get(b.Context(), key)
			if err == nil && (len(resp.Kvs) != 1 || string(resp.Kvs[0].Value) == "junk") {
				err = fmt.Errorf("not yet")
			}
			return err
		})
	}
}

// silent subscribes as a clerk that never acknowledges, until the function that it returns
// is called.
func (b *bed) silent() (end func()) {
	b.Helper()
	conn, err := grpc.NewClient(b.distributorAddr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	b.must(err)
	stream, err := slicerv1.NewSubscriberServiceClient(conn).Watch(b.Context())
	b.must(err)
	b.must(stream.Send(&slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Hello{Hello: &slicerv1.Hello{
		Job: job, Role: slicerv1.Role_ROLE_CLERK, ClientId: "silent",
	}}}))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			if _, err := stream.Recv(); err != nil {
				return
			}
		}
	}()
	return func() { conn.Close(); <-done }
}

const (
	firesWithin = 90 * time.Second // in real time
	quietWithin = 90 * time.Second
)

// only chooses breakages, when one of them is worked on.
var only = flag.String("only", "", "break only what this regular expression matches")

// TestAlerts breaks one thing after another. Each alert fires for what it is for, and no
// other does, and is quiet again when that is mended.
func TestAlerts(t *testing.T) {
	b := newBed(t)
	covered := map[string]bool{}
	b.settle("the beginning", nil)
	t.Logf("%-26s %-66s %10s %6s %11s %12s", "alert", "what was broken", "true after", "for", "fired after", "quiet after")
	for _, x := range breakages {
		if !regexp.MustCompile(*only).MatchString(x.what) {
			continue
		}
		b.p.run(x.speed)
		began := time.Now()
		x.start(b)
		for _, a := range x.alerts {
			covered[a] = true
			for r := b.p.rule(a); !r.firing; b.p.tick() {
				if time.Since(began) > firesWithin {
					t.Errorf("%s: %s does not fire within %s; true %t; firing %v", x.what, a, firesWithin, r.since != 0, b.p.firing())
					break
				}
			}
		}
		for _, a := range b.p.firing() {
			if !slices.Contains(x.alerts, a) && !slices.Contains(x.also, a) {
				t.Errorf("%s: %s fires, too", x.what, a)
			}
		}
		after := map[string]time.Duration{}
		for _, a := range x.alerts {
			after[a] = b.p.rule(a).trueAt.Sub(began)
		}
		mended := time.Now()
		x.mend(b)
		quiet := b.settle(x.what, x.alerts)
		for _, a := range x.alerts {
			r := b.p.rule(a)
			q := quiet[a].Sub(mended)
			if r.window > 0 { // what it looks back at has to pass first
				q = max(q, r.window)
			}
			t.Logf("%-26s %-66s %9.1fs %6s %10.1fs %11.1fs", a, x.what, after[a].Seconds(), r.wait, (after[a] + r.wait).Seconds(), q.Seconds())
		}
	}
	for _, r := range b.p.rules {
		if !covered[r.Alert] && *only == "" {
			t.Errorf("nothing sets off %s", r.Alert)
		}
	}
}

// settle waits until no alert fires and none is about to, and returns since when each of
// those has been quiet, in real time.
func (b *bed) settle(after string, alerts []string) map[string]time.Time {
	b.Helper()
	quiet := map[string]time.Time{}
	began := time.Now()
	for still := 0; still < 5; {
		if time.Since(began) > quietWithin {
			b.Fatalf("after %s: %v are not quiet within %s", after, b.p.firing(), quietWithin)
		}
		b.p.tick()
		pending := 0
		for _, r := range b.p.rules {
			if r.since != 0 {
				pending++
			}
			if r.since != 0 {
				delete(quiet, r.Alert)
			} else if _, ok := quiet[r.Alert]; !ok {
				quiet[r.Alert] = time.Now()
			}
		}
		if still++; pending > 0 {
			still = 0
		}
	}
	return quiet
}
