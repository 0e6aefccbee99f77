package attack

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/access/accesstest"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"github.com/slicer-project/slicer/test/kit/process"
)

const (
	job    = "web"
	tasks  = 100
	lasts  = 10 * time.Second
	atRest = 6 * time.Second // a round each 5 s gives those keys that joined after the first
	honest = "127.0.0.1"
	bad    = "127.0.0.2"
)

// attackEnv says to the benchmark's own program that it is the attacker, of what, and for how
// many seconds.
const attackEnv = "SLICER_TEST_ATTACK"

func attackOf(name string, t *target, d time.Duration) string {
	f := t.attacker
	return fmt.Sprint(attackEnv, "=", name, " ", t.address, " ", t.http, " ", d.Seconds(), " ", f.Cert, " ", f.Key, " ", f.CA)
}

func TestMain(m *testing.M) {
	if s := os.Getenv(honestEnv); s != "" {
		if err := runHonest(s); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if s := os.Getenv(attackEnv); s != "" {
		var name string
		var seconds float64
		t, f := &target{}, accesstest.Files{}
		fmt.Sscan(s, &name, &t.address, &t.http, &seconds, &f.Cert, &f.Key, &f.CA)
		if err := t.present(f); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		ctx, over := context.WithTimeout(context.Background(), time.Duration(seconds*float64(time.Second)))
		defer over()
		for _, a := range attacks {
			if a.name == name {
				a.run(ctx, t)
			}
		}
		return
	}
	os.Exit(process.Main(m))
}

// target is the process under attack.
type target struct {
	b             *testing.B
	p             *process.Process
	address, http string // of the server that is attacked
	distributor   string
	pid           int
	tls           *tls.Config           // of this process's connections, nil for plain text
	authority     *accesstest.Authority // nil for plain text
	attacker      accesstest.Files      // the zero value for plain text
}

// from connects from an address of this machine to what is attacked.
func (t *target) from(address string) *grpc.ClientConn { return dial(address, t.address, t.tls) }

func dial(from, to string, certificate *tls.Config) *grpc.ClientConn {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	creds := insecure.NewCredentials()
	if certificate != nil {
		creds = credentials.NewTLS(certificate)
	}
	cc, err := grpc.NewClient("passthrough:///"+to, grpc.WithTransportCredentials(creds),
		grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) { return d.DialContext(ctx, "tcp", to) }))
	if err != nil {
		panic(err)
	}
	return cc
}

// raw is a TCP connection of the attacker's.
func (t *target) raw(to string) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(bad)}, Timeout: time.Second}
	return d.Dial("tcp", to)
}

func watch(ctx context.Context, cc *grpc.ClientConn, h *slicerv1.Hello) (slicerv1.SubscriberService_WatchClient, error) {
	s, err := slicerv1.NewSubscriberServiceClient(cc).Watch(ctx)
	if err != nil {
		return nil, err
	}
	return s, s.Send(&slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Hello{Hello: h}})
}

// join connects, joins as a clerk and waits for the assignment.
func (t *target) join() (*assignment.Assignment, time.Duration, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	began := time.Now()
	cc := t.from(honest)
	defer cc.Close()
	s, err := watch(ctx, cc, &slicerv1.Hello{Job: job, Role: slicerv1.Role_ROLE_CLERK, ClientId: "honest"})
	if err != nil {
		return nil, time.Since(began), err
	}
	var asm wire.Assembler
	for {
		m, err := s.Recv()
		if err != nil {
			return nil, time.Since(began), err
		}
		if c := m.GetChunk(); c != nil {
			if err := asm.Add(c); err != nil {
				return nil, 0, err
			}
		}
		if tr := m.GetTrailer(); tr != nil {
			a, err := asm.Finish(tr, nil)
			return a, time.Since(began), err
		}
	}
}

// task is one that is there all the while, and takes what it is sent.
func (t *target) task(ctx context.Context, i int, ready *sync.WaitGroup) {
	name := fmt.Sprint("t", i)
	cc := dial(honest, t.distributor, t.as(taskID(name)))
	defer cc.Close()
	s, err := watch(ctx, cc, &slicerv1.Hello{Job: job, Role: slicerv1.Role_ROLE_SLICELET, ClientId: name, Task: taskOf(name, uint64(i+1)),
		Report: &slicerv1.Report{Sequence: 1, State: slicerv1.TaskState_TASK_STATE_RUNNING}})
	ready.Done()
	if err != nil {
		t.b.Error(err)
		return
	}
	var sending sync.Mutex
	send := func(m *slicerv1.WatchRequest) {
		sending.Lock()
		defer sending.Unlock()
		_ = s.Send(m)
	}
	go func() {
		for n := uint64(2); ctx.Err() == nil; n++ {
			time.Sleep(time.Second)
			send(&slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Report{Report: &slicerv1.Report{Sequence: n, State: slicerv1.TaskState_TASK_STATE_RUNNING}}})
		}
	}()
	for {
		m, err := s.Recv()
		if err != nil {
			if ctx.Err() == nil {
				t.b.Errorf("task %s has ended: %v", name, err)
			}
			return
		}
		if tr := m.GetTrailer(); tr != nil {
			send(&slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Ack{Ack: &slicerv1.Ack{Generation: tr.Generation}}})
		}
	}
}

func taskOf(name string, incarnation uint64) *slicerv1.Task {
	return &slicerv1.Task{Name: name, Incarnation: incarnation, Address: "127.0.0.1:9", Weight: 1, State: slicerv1.TaskState_TASK_STATE_RUNNING}
}

// memory is what the process has resident, MiB.
func (t *target) memory() float64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", t.pid))
	if err != nil {
		t.b.Fatal(err)
	}
	for l := range strings.Lines(string(b)) {
		if f := strings.Fields(l); len(f) > 1 && f[0] == "VmRSS:" {
			kb, _ := strconv.Atoi(f[1])
			return float64(kb) / 1024
		}
	}
	t.b.Fatal("no VmRSS")
	return 0
}

// phase is what honest clients saw of a while.
type phase struct {
	slowest time.Duration
	joins   int
	memory  float64
	last    *assignment.Assignment
}

func (t *target) phase(until <-chan struct{}) (p phase) {
	for {
		a, took, err := t.join()
		if err != nil {
			t.b.Logf("a join failed: %v", err)
			took = max(took, 20*time.Second)
		} else {
			p.last = a
		}
		p.joins++
		p.slowest, p.memory = max(p.slowest, took), max(p.memory, t.memory())
		select {
		case <-until:
			return p
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func after(d time.Duration) <-chan struct{} {
	c := make(chan struct{})
	time.AfterFunc(d, func() { close(c) })
	return c
}

// each does something so often a second until the attack is over.
func each(ctx context.Context, persecond int, f func(i int)) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	began, done := time.Now(), 0
	for {
		for due := int(time.Since(began).Seconds() * float64(persecond)); done < due; done++ {
			f(done)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// attacks are what one client does, until ctx ends.
var attacks = []struct {
	name string
	run  func(ctx context.Context, t *target)
}{
	{"nothing", func(ctx context.Context, _ *target) { <-ctx.Done() }},
	{"10000-unknown-names-a-second", func(ctx context.Context, t *target) {
		var conns []*grpc.ClientConn
		for range 8 {
			cc := t.from(bad)
			defer cc.Close()
			conns = append(conns, cc)
		}
		slots, pid := make(chan struct{}, 2000), os.Getpid()
		each(ctx, 10_000, func(i int) {
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return
			}
			go func() {
				defer func() { <-slots }()
				if s, err := watch(ctx, conns[i%len(conns)], &slicerv1.Hello{Job: fmt.Sprint("nobody-", pid, "-", i), Role: slicerv1.Role_ROLE_CLERK}); err == nil {
					_, _ = s.Recv()
				}
			}()
		})
	}},
	{"300-silent-connections-a-second", func(ctx context.Context, t *target) { t.connections(ctx, 300, "") }},
	{"300-stuck-handshakes-a-second", func(ctx context.Context, t *target) {
		say := "PRI * HTTP/2.0\r\n"
		if t.tls != nil {
			say = "\x16\x03\x01\x02\x00\x01" // a ClientHello that goes on
		}
		t.connections(ctx, 300, say)
	}},
	{"20000-streams-on-one-connection", func(ctx context.Context, t *target) {
		cc := t.from(bad)
		defer cc.Close()
		each(ctx, 5000, func(i int) {
			if i >= 20_000 {
				return
			}
			go func() {
				if s, err := watch(ctx, cc, &slicerv1.Hello{Job: job, Role: slicerv1.Role_ROLE_CLERK, ClientId: fmt.Sprint("s", i)}); err == nil {
					for err == nil {
						_, err = s.Recv()
					}
				}
			}()
		})
	}},
	{"2000-unread-scrapes", func(ctx context.Context, t *target) {
		var conns []net.Conn
		for range 2000 {
			c, err := t.raw(t.http)
			if err != nil {
				continue
			}
			c.(*net.TCPConn).SetReadBuffer(2048)
			if t.tls != nil {
				_ = c.SetDeadline(time.Now().Add(time.Second))
				c = tls.Client(c, t.tls)
			}
			fmt.Fprintf(c, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
			conns = append(conns, c)
		}
		<-ctx.Done()
		for _, c := range conns {
			c.Close()
		}
	}},
	{"100-joins-a-second-of-3-names", func(ctx context.Context, t *target) {
		cc := t.from(bad)
		defer cc.Close()
		each(ctx, 100, func(i int) {
			go func() {
				ctx, cancel := context.WithTimeout(ctx, 30*time.Millisecond)
				defer cancel()
				h := &slicerv1.Hello{Job: job, Role: slicerv1.Role_ROLE_SLICELET, Task: taskOf(fmt.Sprint("z", i%3), uint64(time.Now().UnixNano())),
					Report: &slicerv1.Report{Sequence: 1, State: slicerv1.TaskState_TASK_STATE_RUNNING}}
				if s, err := watch(ctx, cc, h); err == nil {
					for err == nil {
						_, err = s.Recv()
					}
				}
			}()
		})
	}},
	{ofOneOwner, func(ctx context.Context, t *target) {
		var conns []*grpc.ClientConn
		for range 12 {
			cc := t.from(bad)
			defer cc.Close()
			conns = append(conns, cc)
		}
		each(ctx, 5000, func(i int) {
			if i < 10_000 {
				go t.owned(ctx, conns[i%len(conns)], fmt.Sprint("o", i))
			}
		})
	}},
	{"a-clerk-of-tomorrow", func(ctx context.Context, t *target) {
		cc := t.from(bad)
		defer cc.Close()
		a, _, err := t.join()
		if err != nil {
			return
		}
		each(ctx, 10, func(i int) {
			h := &slicerv1.Hello{Job: job, Role: slicerv1.Role_ROLE_CLERK, ClientId: fmt.Sprint("c", i), StoreId: a.StoreID(), Checksum: 1,
				Generation: time.Now().Add(23*time.Hour + time.Duration(i)*time.Minute).UnixMilli()}
			_, _ = watch(ctx, cc, h)
		})
	}},
}

// ofOneOwner is for TLS alone: it is the policy that bounds what one identity may have.
const ofOneOwner = "10000-tasks-of-one-owner"

// atBackup are the attacks that the Backup Distributor is tried with, too.
var atBackup = []string{"10000-unknown-names-a-second", "300-silent-connections-a-second", "300-stuck-handshakes-a-second", "20000-streams-on-one-connection"}

// connections are opened so often a second, send so much and no more.
func (t *target) connections(ctx context.Context, persecond int, say string) {
	var mu sync.Mutex
	var conns []net.Conn
	each(ctx, persecond, func(int) {
		c, err := t.raw(t.address)
		if err != nil {
			return
		}
		_, _ = io.WriteString(c, say)
		mu.Lock()
		conns = append(conns, c)
		mu.Unlock()
	})
	for _, c := range conns {
		c.Close()
	}
}

// BenchmarkAttack is described by the package.
func BenchmarkAttack(b *testing.B) {
	for _, a := range attacks {
		if a.name != ofOneOwner {
			b.Run(a.name, func(b *testing.B) { underAttack(b, a.name, false, "") })
		}
	}
	for _, name := range atBackup {
		b.Run("backup/"+name, func(b *testing.B) { underAttack(b, name, true, "") })
	}
	for _, a := range overTLS {
		b.Run("tls/"+path.Base(a.identity)+"/"+a.name, func(b *testing.B) { underAttack(b, a.name, false, a.identity) })
	}
}

// underAttack runs an attack, over TLS with a policy if the attacker has an identity.
func underAttack(b *testing.B, name string, backup bool, identity string) {
	for b.Loop() {
		t := start(b, backup, identity)
		ctx, cancel := context.WithCancel(context.Background())
		var ready, ended sync.WaitGroup
		for i := range tasks {
			ready.Add(1)
			ended.Go(func() { t.task(ctx, i, &ready) })
		}
		ready.Wait()
		process.Eventually(b, 2*time.Minute, "an assignment to all that stays", func() error {
			a, _, err := t.join()
			if err != nil || a.NumTasks() < tasks {
				return errors.Join(err, errors.New("not all of them"))
			}
			if left := atRest - time.Since(time.UnixMilli(int64(a.Generation()))); left > 0 {
				time.Sleep(left)
				return errors.New("it may change yet")
			}
			return nil
		})
		before := t.phase(after(5 * time.Second))
		attacker := process.Start(b, "attacker", []string{attackOf(name, t, lasts)}, os.Args[0])
		during := t.phase(attacker.Done())
		t.bounded()
		later := t.phase(after(5 * time.Second))
		cancel()
		ended.Wait()
		t.p.End(20 * time.Second)
		t.report(before, during, later)
	}
}

func start(b *testing.B, backup bool, identity string) *target {
	addrs := process.FreePorts(b, 3)
	t := &target{b: b, address: addrs[0], http: addrs[2], distributor: addrs[0]}
	if backup {
		t.address = addrs[1]
	}
	argv := []string{"serve", "--store", "pebble://" + b.TempDir() + "/db", "--listen", addrs[0], "--backup-listen", addrs[1], "--http", addrs[2]}
	if identity != "" {
		argv = append(argv, t.secure(identity)...)
	}
	process.Build(b, "slicer", "github.com/slicer-project/slicer/cmd/slicer")
	t.p = process.Start(b, "slicer", nil, append([]string{process.Program("slicer")}, argv...)...)
	t.pid = t.p.Pid()
	cc := t.admin()
	defer cc.Close()
	for _, c := range t.jobs() {
		process.Eventually(b, time.Minute, "job "+c.GetName(), func() error {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			_, err := slicerv1.NewAdminServiceClient(cc).PutJob(ctx, &slicerv1.PutJobRequest{Config: c})
			return err
		})
	}
	return t
}

func (t *target) report(before, during, later phase) {
	ms := func(d time.Duration) float64 { return float64(d.Milliseconds()) }
	t.b.ReportMetric(ms(before.slowest), "before-ms")
	t.b.ReportMetric(ms(during.slowest), "during-ms")
	t.b.ReportMetric(ms(later.slowest), "after-ms")
	t.b.ReportMetric(before.memory, "before-MiB")
	t.b.ReportMetric(max(during.memory, later.memory), "most-MiB")
	moved := 0
	if before.last != nil && later.last != nil {
		ahead := float64(later.last.Generation()-assignment.Generation(time.Now().UnixMilli())) / 1000
		t.b.ReportMetric(max(0, ahead), "ahead-s")
		for i := range uint64(1000) {
			key := assignment.SliceKey(i * (uint64(assignment.KeyspaceEnd) / 1000))
			x, y := before.last.Lookup(key).At(0).Name, later.last.Lookup(key).At(0).Name
			if x != y {
				moved++
			}
		}
	}
	t.b.ReportMetric(float64(moved)/10, "keys-moved-%")
	if moved > 0 && t.tls != nil {
		t.b.Errorf("%d of 1000 keys have another owner", moved)
	}
	if m := max(during.slowest, later.slowest); m >= time.Second {
		t.b.Errorf("a join took %s, less than 1 s is promised", m)
	}
	if m := max(during.memory, later.memory); m > 2*before.memory {
		t.b.Errorf("%.0f MiB are resident, from %.0f before", m, before.memory)
	}
}
