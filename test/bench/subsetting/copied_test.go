package subsetting

import (
	"context"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"github.com/slicer-project/slicer/slicelet"
)

// A stranger that copies a task's name and incarnation and says that it ends, with the
// highest sequence there is, silences it for a moment and no longer.
func TestCopiedIncarnation(t *testing.T) {
	for _, at := range []string{distributor1, distributor2} {
		for _, state := range []slicerv1.TaskState{slicerv1.TaskState_TASK_STATE_DEAD, slicerv1.TaskState_TASK_STATE_RUNNING} {
			t.Run(fmt.Sprintf("%s at %s", state, at), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := newPlane(t)
					defer p.close()
					p.putJob()
					var tasks []*slicelet.Slicelet
					for i := range 2 {
						s := p.server(fmt.Sprint("server-", i))
						defer s.Close()
						tasks = append(tasks, s)
					}
					time.Sleep(10 * time.Second)
					copied, _ := tasks[0].Assignment().Position("server-0")
					p.pretend(at, tasks[0].Assignment().Task(copied), state)
					time.Sleep(30 * time.Second)
					a := tasks[1].Assignment()
					i, ok := a.Position("server-0")
					if !ok || a.Task(i).State != assignment.TaskRunning || len(tasks[0].Slices()) == 0 {
						t.Errorf("30 s later: in the assignment %t, which is\n%v\nand it owns %d slices", ok, a.Task(i).State, len(tasks[0].Slices()))
					}
				})
			})
		}
	}
}

// pretend says something once in the place of a task.
func (p *plane) pretend(distributor string, task assignment.Task, state slicerv1.TaskState) {
	p.Helper()
	conn, err := grpc.NewClient("passthrough:///"+distributor, p.dialOptions()...)
	if err != nil {
		p.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(p.Context())
	defer cancel()
	stream, err := slicerv1.NewSubscriberServiceClient(conn).Watch(ctx)
	if err != nil {
		p.Fatal(err)
	}
	report := &slicerv1.Report{Sequence: math.MaxUint64, State: state}
	hello := &slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Hello{Hello: &slicerv1.Hello{Job: job,
		Role: slicerv1.Role_ROLE_SLICELET, ClientId: "stranger", Task: wire.TaskToProto(task), Report: report}}}
	if err := stream.Send(hello); err != nil {
		p.Fatal(err)
	}
	time.Sleep(2 * time.Second)
}
