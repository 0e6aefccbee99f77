package fanout

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"github.com/slicer-project/slicer/test/kit/distsim"
)

// reportersEnv has the test binary be Distributors with simulated tasks.
const reportersEnv = "SLICER_TEST_REPORTERS"

// startReporters starts a process with Distributors, each with so many tasks, that
// are attached to the assigner at an address. ready returns once every task has
// acknowledged an assignment.
func startReporters(b testing.TB, address, job string, distributors, tasks int) (ready func()) {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d %s %s", reportersEnv, distributors, tasks, job, address))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { in.Close(); cmd.Wait() })
	lines := bufio.NewReader(out)
	return func() {
		if line, err := lines.ReadString('\n'); err != nil || line != "ready\n" {
			b.Fatalf("the reporters say %q, %v", line, err)
		}
	}
}

// reportersMain runs them if this process is to be that, until stdin ends.
func reportersMain() (was bool) {
	arg := os.Getenv(reportersEnv)
	if arg == "" {
		return false
	}
	var distributors, tasks int
	var job, address string
	fmt.Sscan(arg, &distributors, &tasks, &job, &address)
	ctx, cancel := context.WithCancel(context.Background())
	var holds atomic.Int64
	for i := range distributors {
		go func() {
			r := &reporter{number: i, tasks: tasks, job: job, holds: &holds}
			if err := r.run(ctx, address); ctx.Err() == nil {
				fmt.Fprintln(os.Stderr, "distributor", i, "ended:", err)
			}
		}()
	}
	go func() {
		for holds.Load() < int64(distributors*tasks) {
			time.Sleep(50 * time.Millisecond)
		}
		fmt.Println("ready")
	}()
	bufio.NewReader(os.Stdin).ReadByte()
	cancel()
	return true
}

// reporter is one Distributor, driven by one goroutine, on a real stream to the
// assigner, and its tasks, which are simulated.
type reporter struct {
	number, tasks int
	job           string
	holds         *atomic.Int64 // tasks that hold something

	d    *distsim.Distributor
	asm  wire.Assembler
	held *assignment.Assignment // what all tasks here hold
	mine map[string][]assignment.Slice
	all  []*task
}

type task struct {
	name     string
	peer     *distsim.Subscriber
	sequence uint64
	nextAt   time.Time
	ack      int64 // to be acknowledged, 0 for nothing
	holds    bool
}

func (r *reporter) run(ctx context.Context, address string) error {
	cc, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer cc.Close()
	stream, err := slicerv1.NewAssignerServiceClient(cc).Attach(ctx)
	if err != nil {
		return err
	}
	hello := &slicerv1.DistributorHello{DistributorId: fmt.Sprint("d", r.number)}
	if err := stream.Send(&slicerv1.AttachRequest{Message: &slicerv1.AttachRequest_Hello{Hello: hello}}); err != nil {
		return err
	}
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	came := make(chan *slicerv1.AttachResponse, 64)
	ended := make(chan error, 1)
	go func() {
		for {
			m, err := stream.Recv()
			if err != nil {
				ended <- err
				return
			}
			came <- m
		}
	}()
	r.d = distsim.New(hello.DistributorId, time.Now(), nil)
	var failed error
	up := r.d.Attached(time.Now(), first.GetHello(), func(m *slicerv1.AttachRequest) {
		if err := stream.Send(m); err != nil {
			failed = err
		}
	}, func() {})
	if err := r.join(); err != nil {
		return err
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for failed == nil {
		select {
		case m := <-came:
			r.d.FromAssigner(time.Now(), up, m)
		case err := <-ended:
			return err
		case <-tick.C:
			r.report(time.Now())
		}
		r.d.Step(time.Now())
	}
	return failed
}

// join has all tasks say hello.
func (r *reporter) join() error {
	for i := range r.tasks {
		t := &task{name: fmt.Sprintf("task-%d-%d", r.number, i)}
		now := time.Now()
		hello := &slicerv1.Hello{
			Job: r.job, Role: slicerv1.Role_ROLE_SLICELET, ClientId: t.name,
			Task: &slicerv1.Task{
				Name: t.name, Incarnation: 1, Address: fmt.Sprintf("10.%d.%d.%d:80", r.number, i/256, i%256), Weight: 1,
				State: slicerv1.TaskState_TASK_STATE_RUNNING,
			},
			Report: &slicerv1.Report{Sequence: 1, State: slicerv1.TaskState_TASK_STATE_RUNNING},
		}
		var err error
		t.sequence = 1
		t.nextAt = now.Add(time.Duration(i) * time.Second / time.Duration(r.tasks))
		t.peer, err = r.d.Join(now, &slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Hello{Hello: hello}},
			func(m *slicerv1.WatchResponse) { r.received(t, m) }, func(error) {})
		if err != nil {
			return err
		}
		r.all = append(r.all, t)
	}
	return nil
}

// received takes what a task is sent. They all hold the same: the first decodes it.
func (r *reporter) received(t *task, m *slicerv1.WatchResponse) {
	if tr := m.GetTrailer(); tr != nil {
		t.ack = tr.GetGeneration()
	}
	if t != r.all0() {
		return
	}
	switch {
	case m.GetChunk() != nil:
		if err := r.asm.Add(m.GetChunk()); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	case m.GetTrailer() != nil:
		a, err := r.asm.Finish(m.GetTrailer(), r.held)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return
		}
		r.held = a
		r.mine = make(map[string][]assignment.Slice)
		for s, owners := range a.All() {
			for i := range owners.Len() {
				name := a.Task(owners.Position(i)).Name
				r.mine[name] = append(r.mine[name], s)
			}
		}
	}
}

func (r *reporter) all0() *task {
	if len(r.all) == 0 {
		return nil
	}
	return r.all[0]
}

// report has the tasks acknowledge, and those report whose second has passed.
func (r *reporter) report(now time.Time) {
	for _, t := range r.all {
		if t.ack != 0 {
			r.d.FromSubscriber(now, t.peer, &slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Ack{Ack: &slicerv1.Ack{Generation: t.ack}}})
			t.ack = 0
			if !t.holds {
				t.holds = true
				r.holds.Add(1)
			}
		}
		if t.nextAt.After(now) {
			continue
		}
		t.nextAt = t.nextAt.Add(time.Second)
		t.sequence++
		rep := &slicerv1.Report{Sequence: t.sequence, State: slicerv1.TaskState_TASK_STATE_RUNNING, Load: r.load(t)}
		r.d.FromSubscriber(now, t.peer, &slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Report{Report: rep}})
	}
}

// load is what a task of a busy job reports: each slice in eight parts, and eight
// heavy keys.
func (r *reporter) load(t *task) *slicerv1.LoadReport {
	if r.held == nil {
		return nil
	}
	const parts, heavy = 8, 8
	l := &assignment.Load{Generation: r.held.Generation(), Window: time.Second, Parts: parts}
	for _, s := range r.mine[t.name] {
		l.Ranges = append(l.Ranges, s)
		sum := 0.0
		for range parts {
			x := 10 * rand.Float64()
			l.PartRate = append(l.PartRate, x)
			sum += x
		}
		l.Rate = append(l.Rate, sum)
		l.Total += sum
	}
	for i := range min(heavy, len(l.Ranges)) {
		l.Hot = append(l.Hot, assignment.HotKey{Key: l.Ranges[i].Start, Rate: rand.Float64()})
	}
	return wire.LoadToProto(l)
}
