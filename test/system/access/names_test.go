package access

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"github.com/slicer-project/slicer/test/kit/process"
)

// raider has the right to own job cache, as its tasks have, and wants their names.
const raider = "spiffe://corp/cache/raider"

// cacheTask is the identity of a task of job cache.
func cacheTask(name string) string { return "spiffe://corp/cache/task/" + name }

// claimant is a process that says again and again, by a Distributor, that it is a task.
type claimant struct {
	hello *slicerv1.Hello
	cc    *grpc.ClientConn
	stop  context.CancelFunc
	done  chan struct{}

	mu     sync.Mutex
	ends   bool // it is to say that it ends
	taken  int  // how often it was told that the name is another's
	robbed int  // and that by an assigner
	in     bool // its stream is open
	reason error
}

func (b *bed) claim(where, identity, name string, incarnation uint64, address string) *claimant {
	running := slicerv1.TaskState_TASK_STATE_RUNNING
	c := &claimant{cc: b.dial(where, identity), done: make(chan struct{}), hello: &slicerv1.Hello{
		Job: cacheJob, Role: slicerv1.Role_ROLE_SLICELET, ClientId: name,
		Task:   &slicerv1.Task{Name: name, Incarnation: incarnation, Address: address, Weight: 1, State: running},
		Report: &slicerv1.Report{Sequence: 1, State: running},
	}}
	ctx, stop := context.WithCancel(b.t.Context())
	c.stop = stop
	go func() {
		defer close(c.done)
		for sequence := uint64(2); ctx.Err() == nil; {
			err := c.once(ctx, &sequence)
			c.mu.Lock()
			c.reason, c.in = err, false
			if status.Code(err) == codes.AlreadyExists {
				c.taken++
				if strings.Contains(err.Error(), "that of another identity") {
					c.robbed++
				}
			}
			ends := c.ends
			c.mu.Unlock()
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
			if ends {
				return
			}
		}
	}()
	b.t.Cleanup(c.end)
	return c
}

// once is one stream, on which it reports until it breaks.
func (c *claimant) once(ctx context.Context, sequence *uint64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := slicerv1.NewSubscriberServiceClient(c.cc).Watch(ctx)
	if err != nil {
		return err
	}
	if err := sent(s.Send(&slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Hello{Hello: c.hello}})); err != nil {
		return err
	}
	broken := make(chan error, 1)
	go func() {
		for {
			if _, err := s.Recv(); err != nil {
				broken <- err
				return
			}
			c.mu.Lock()
			c.in = true
			c.mu.Unlock()
		}
	}()
	for tick := time.NewTicker(100 * time.Millisecond); ; {
		select {
		case err := <-broken:
			tick.Stop()
			return err
		case <-tick.C:
		}
		r := &slicerv1.Report{Sequence: *sequence, State: slicerv1.TaskState_TASK_STATE_RUNNING}
		*sequence++
		c.mu.Lock()
		if c.ends {
			r.State = slicerv1.TaskState_TASK_STATE_DEAD
		}
		c.mu.Unlock()
		_ = s.Send(&slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Report{Report: r}}) // Recv says why
	}
}

func (c *claimant) end() { c.stop(); <-c.done }

// goodbye says that the task ends.
func (c *claimant) goodbye() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ends = true
}

func (c *claimant) look() (taken, robbed int, in bool, why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.taken, c.robbed, c.in, c.reason
}

// inspect asks the one of these that decides for job cache.
func (b *bed) inspect(where ...string) (r *slicerv1.InspectJobResponse, at string, err error) {
	for _, at = range where {
		ctx, cancel := context.WithTimeout(b.t.Context(), 2*time.Second)
		x, bad := b.admin(at).InspectJob(ctx, &slicerv1.InspectJobRequest{Job: cacheJob})
		cancel()
		if bad == nil && x.GetPreferred() && x.GetHolding() == "" {
			return x, at, nil
		}
		err = errors.Join(err, bad, fmt.Errorf("%s: preferred %v, holding %q", at, x.GetPreferred(), x.GetHolding()))
	}
	return nil, "", err
}

// TestNamesStayTheirs: the control plane's memory of which identity is which task goes, by
// a takeover, a restart of the only assigner, or one of all there is. A raider that may
// own the job tries the name of a task that has just stopped, and with a copied incarnation that of one
// that lives, from before that on and before the honest tasks can report.
func TestNamesStayTheirs(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	cache := &slicerv1.JobConfig{Name: cacheJob, Access: &slicerv1.Access{Own: []string{"spiffe://corp/cache/**"}}}
	for _, x := range []struct {
		name             string
		honest, raided   string
		assigners, parts []string
	}{
		{"takeover", atFirst, atOther, []string{atAssigner, atRival}, []string{atAssigner, atRival, atFirst, atOther}},
		{"restart of the only assigner", atFirst, atOther, []string{atAssigner}, []string{atAssigner, atFirst, atOther}},
		{"restart of slicer serve", atServe, atServe, []string{atServe}, []string{atServe}},
	} {
		t.Run(x.name, func(t *testing.T) {
			b := *b
			b.t = t
			b.conns = map[[2]string]*grpc.ClientConn{}
			b.processes = map[string]*process.Process{}
			for _, where := range x.parts {
				flags := b.policy
				if where == atFirst || where == atOther {
					flags = append([]string{"--assigners=" + b.at[x.assigners[len(x.assigners)-1]]}, flags...)
				}
				b.start(where, flags...)
			}
			b.put(x.honest, cache)
			b.raid(x.honest, x.raided, x.assigners...)
		})
	}
}

func (b *bed) raid(honest, raided string, assigners ...string) {
	t := b.t
	live := map[string]*claimant{}
	for i := range 4 {
		name := fmt.Sprint("t", i+1)
		live[name] = b.claim(honest, cacheTask(name), name, uint64(i+100), name+".cache:80")
	}
	state := func(r *slicerv1.InspectJobResponse, name string) (s slicerv1.TaskState, address string) {
		for _, x := range r.GetTasks() {
			if x.GetTask().GetName() == name {
				return x.GetTask().GetState(), x.GetTask().GetAddress()
			}
		}
		return slicerv1.TaskState_TASK_STATE_UNSPECIFIED, ""
	}
	// run wants these tasks to run and to be connected, and returns which assigner says so.
	run := func(what string, names ...string) (at string) {
		t.Helper()
		process.Eventually(t, limit, what, func() (err error) {
			var r *slicerv1.InspectJobResponse
			if r, at, err = b.inspect(assigners...); err != nil {
				_, _, _, why := live[names[0]].look()
				return errors.Join(err, why)
			}
			for _, name := range names {
				if s, _ := state(r, name); s != slicerv1.TaskState_TASK_STATE_RUNNING {
					return fmt.Errorf("%s is %s", name, s)
				}
				if _, _, in, why := live[name].look(); !in {
					return fmt.Errorf("%s is not connected: %w", name, why)
				}
			}
			return nil
		})
		return at
	}
	decides := run("all run", "t1", "t2", "t3", "t4")
	live["t4"].goodbye()
	process.Eventually(t, limit, "t4 has gone", func() error {
		r, _, err := b.inspect(assigners...)
		if s, _ := state(r, "t4"); err == nil && s != slicerv1.TaskState_TASK_STATE_DEAD {
			err = fmt.Errorf("t4 is %s", s)
		}
		return err
	})
	live["t4"].end()

	if honest != raided { // the honest tasks are heard last
		b.processes[honest].Stop()
	}
	dead := b.processes[decides]
	dead.Kill()
	raids := []*claimant{b.claim(raided, raider, "t4", 666, "raider:80"), b.claim(raided, raider, "t1", 100, "raider:80")}
	refused := func(n int) error {
		for _, c := range raids {
			if taken, _, _, why := c.look(); taken < n {
				return fmt.Errorf("%s was refused %d times to the raider, and last: %w", c.hello.Task.Name, taken, why)
			}
		}
		return nil
	}
	if len(assigners) == 1 {
		dead.Restart()
	}
	// Until the raider is heard; without the honest ones the assigner does not say that it
	// is preferred before.
	for end := time.Now().Add(15 * time.Second); refused(1) != nil && time.Now().Before(end); {
		time.Sleep(100 * time.Millisecond)
	}
	if honest != raided {
		b.processes[honest].Continue()
	}
	run("after it the others run", "t1", "t2", "t3")
	process.Eventually(t, limit, "the raider is refused", func() error {
		r, _, err := b.inspect(assigners...)
		if s, address := state(r, "t4"); err == nil && address == "raider:80" && s != slicerv1.TaskState_TASK_STATE_DEAD {
			t.Fatalf("t4 is %s at %s", s, address)
		}
		return errors.Join(err, refused(5))
	})
	r, _, err := b.inspect(assigners...)
	if err != nil {
		t.Error(err)
	}
	for _, x := range r.GetTasks() {
		if strings.HasPrefix(x.GetTask().GetAddress(), "raider") || x.GetTask().GetIncarnation() == 666 {
			t.Errorf("the raider is %v", x)
		}
	}
	for name, c := range live {
		if _, robbed, _, _ := c.look(); robbed > 0 {
			t.Errorf("%s was refused its own name %d times", name, robbed)
		}
	}
	for _, c := range raids {
		taken, robbed, _, _ := c.look()
		t.Logf("%s was refused %d times to the raider, %d of them by an assigner", c.hello.Task.Name, taken, robbed)
		c.end()
	}
	run("in the end", "t1", "t2", "t3")
}
