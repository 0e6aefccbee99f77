package distributor

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// fakeAssigner speaks the assigner's end of the protocol to the letter, with
// assignments that the test sets, and remembers all that it hears.
type fakeAssigner struct {
	slicerv1.UnimplementedAssignerServiceServer
	slicerv1.UnimplementedAdminServiceServer
	t    testing.TB
	id   string
	stop func()

	mu      sync.Mutex
	jobs    map[string]*assignment.Assignment // nil: known, without an assignment
	mute    bool                              // does not answer Want
	saysSo  bool                              // promises to say that it hears a Distributor
	deaf    bool                              // and does not
	streams map[*fakeStream]struct{}
	pref    *slicerv1.Preference
	heard   []*slicerv1.AttachRequest
	acks    map[string]*slicerv1.Acks   // the last, by Distributor
	only    string                      // the Distributor that heard is of, all if empty
	access  map[string]*slicerv1.Access // what it says of rights, by job
	admin   func(method string) error
	whose   map[string]string // the identity that each Distributor is passed on with, by its id
	from    string            // from where, likewise
	caller  string            // whom the last call of AdminService is for, as a Distributor says
	calls   []string
	past    map[int64]*assignment.Assignment // what a WantBase is answered with; nil: not at all
	written time.Time                        // when it says that assignments were stored; zero: now
	older   bool                             // it does not know what compressed wholes are
	damage  int                              // so many of the next compressed wholes do not decode
	gave    []*slicerv1.Trailer              // of all wholes that it sent, bases included
}

// fakeStream is one Distributor's stream.
type fakeStream struct {
	stream slicerv1.AssignerService_AttachServer
	of     string     // the Distributor's id
	end    chan error // ends the stream
	wants  map[string]*slicerv1.Want
	has    map[string]*assignment.Assignment
}

func (n *network) assigner(t testing.TB, id, address string) *fakeAssigner {
	f := newFakeAssigner(t, id)
	f.start(n, address)
	return f
}

func newFakeAssigner(t testing.TB, id string) *fakeAssigner {
	return &fakeAssigner{
		t: t, id: id, jobs: make(map[string]*assignment.Assignment), streams: make(map[*fakeStream]struct{}),
		pref: &slicerv1.Preference{},
	}
}

func (f *fakeAssigner) start(n *network, address string) {
	f.stop = n.serve(f.t, address, func(s *grpc.Server) {
		slicerv1.RegisterAssignerServiceServer(s, f)
		slicerv1.RegisterAdminServiceServer(s, f)
	})
}

func (f *fakeAssigner) Attach(stream slicerv1.AssignerService_AttachServer) error {
	m, err := stream.Recv()
	if err != nil {
		return err
	}
	s := &fakeStream{stream: stream, of: m.GetHello().GetDistributorId(), end: make(chan error, 2), wants: make(map[string]*slicerv1.Want), has: make(map[string]*assignment.Assignment)}
	f.mu.Lock()
	f.note(s, m)
	if f.whose == nil {
		f.whose = make(map[string]string)
	}
	f.whose[s.of] = strings.Join(metadata.ValueFromIncomingContext(stream.Context(), "slicer-identity"), " ")
	for old := range f.streams {
		if old.of == s.of {
			old.end <- status.Error(codes.Aborted, "superseded")
		}
	}
	f.streams[s] = struct{}{}
	f.reply(s, &slicerv1.AttachResponse{Message: &slicerv1.AttachResponse_Hello{Hello: &slicerv1.AssignerHello{AssignerId: f.id, Acknowledges: f.saysSo}}})
	f.reply(s, &slicerv1.AttachResponse{Message: &slicerv1.AttachResponse_Preference{Preference: f.pref}})
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.streams, s)
	}()
	go func() { s.end <- f.receive(s) }()
	return <-s.end
}

func (f *fakeAssigner) receive(s *fakeStream) error {
	for {
		m, err := s.stream.Recv()
		if err != nil {
			return err
		}
		f.mu.Lock()
		f.note(s, m)
		if f.saysSo && !f.deaf {
			f.reply(s, &slicerv1.AttachResponse{Message: &slicerv1.AttachResponse_Acknowledged{Acknowledged: &slicerv1.Acknowledged{}}})
		}
		if w := m.GetWant(); w != nil {
			f.want(s, w)
		}
		if w := m.GetWantBase(); w != nil && f.past != nil {
			f.base(s, w)
		}
		f.mu.Unlock()
	}
}

func (f *fakeAssigner) note(s *fakeStream, m *slicerv1.AttachRequest) {
	if f.only == "" || f.only == s.of {
		f.heard = append(f.heard, m)
	}
	if m.GetAcks() != nil {
		if f.acks == nil {
			f.acks = make(map[string]*slicerv1.Acks)
		}
		f.acks[s.of] = m.GetAcks()
	}
}

// reply sends; the lock is held, so that one goroutine sends at a time.
func (f *fakeAssigner) reply(s *fakeStream, m *slicerv1.AttachResponse) { s.stream.Send(m) }

func (f *fakeAssigner) want(s *fakeStream, w *slicerv1.Want) {
	delete(s.wants, w.Job)
	if w.Stop {
		return
	}
	s.wants[w.Job] = w
	if f.mute {
		return
	}
	a, known := f.jobs[w.Job]
	f.reply(s, &slicerv1.AttachResponse{Message: &slicerv1.AttachResponse_Status{Status: &slicerv1.JobStatus{
		Job: w.Job, Unknown: !known, LoadMetric: "requests", Mode: slicerv1.Mode_MODE_AFFINITY, HeartbeatTimeoutMs: 5000,
		Access: f.access[w.Job],
	}}})
	if w.Generation == 0 || s.has[w.Job] == nil || int64(s.has[w.Job].Generation()) != w.Generation {
		delete(s.has, w.Job)
	}
	if a != nil && int64(a.Generation()) >= w.NewestReported && (a.StoreID() != w.StoreId || int64(a.Generation()) > w.Generation) {
		f.give(s, a)
	}
}

func (f *fakeAssigner) base(s *fakeStream, w *slicerv1.WantBase) {
	say := func(m *slicerv1.JobAssignment) {
		m.Job = w.Job
		f.reply(s, &slicerv1.AttachResponse{Message: &slicerv1.AttachResponse_Base{Base: m}})
	}
	a := f.past[w.Generation]
	if a == nil {
		say(&slicerv1.JobAssignment{})
		return
	}
	fr, err := wire.WholeFrame(a)
	if err != nil {
		f.t.Error(err)
		return
	}
	for m := range f.whole(fr, w.Compressed).Pieces(w.Job) {
		say(m)
	}
}

// whole is a whole as it is sent.
func (f *fakeAssigner) whole(fr *wire.Frame, compressed bool) *wire.Frame {
	if compressed && !f.older {
		fr = fr.Compressed()
	}
	f.gave = append(f.gave, fr.Trailer)
	if fr.Trailer.WholeSize != 0 && f.damage > 0 {
		f.damage--
		t := proto.CloneOf(fr.Trailer)
		t.WholeSize++
		fr = &wire.Frame{Data: fr.Data, Trailer: t}
	}
	return fr
}

// sent are the trailers of the wholes that it has sent since the last call.
func (f *fakeAssigner) sent() (wholes []*slicerv1.Trailer) {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	wholes, f.gave = f.gave, nil
	return wholes
}

func (f *fakeAssigner) give(s *fakeStream, a *assignment.Assignment) {
	var fr *wire.Frame
	var err error
	if base := s.has[a.Job()]; base != nil && base.StoreID() == a.StoreID() {
		fr, err = wire.DeltaFrame(base, a)
	} else if fr, err = wire.WholeFrame(a); err == nil {
		fr = f.whole(fr, s.wants[a.Job()].GetCompressed())
	}
	if err != nil {
		f.t.Error(err)
		return
	}
	s.has[a.Job()] = a
	f.frame(s, a.Job(), fr.Data, fr.Trailer)
}

func (f *fakeAssigner) frame(s *fakeStream, job string, data []byte, trailer *slicerv1.Trailer) {
	for c := range wire.Chunks(data) {
		f.reply(s, pieceOf(job, &slicerv1.JobAssignment_Chunk{Chunk: &slicerv1.Chunk{Data: c}}))
	}
	f.reply(s, &slicerv1.AttachResponse{Message: &slicerv1.AttachResponse_Assignment{
		Assignment: &slicerv1.JobAssignment{Job: job, AgeUs: time.Since(f.writtenAt()).Microseconds(), Piece: &slicerv1.JobAssignment_Trailer{Trailer: trailer}}}})
}

func (f *fakeAssigner) writtenAt() time.Time {
	if f.written.IsZero() {
		return time.Now()
	}
	return f.written
}

func pieceOf(job string, c *slicerv1.JobAssignment_Chunk) *slicerv1.AttachResponse {
	return &slicerv1.AttachResponse{Message: &slicerv1.AttachResponse_Assignment{
		Assignment: &slicerv1.JobAssignment{Job: job, Piece: c}}}
}

// set makes a the newest and sends it to all that want it.
func (f *fakeAssigner) set(a *assignment.Assignment) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.jobs[a.Job()] = a
	for s := range f.streams {
		if s.wants[a.Job()] != nil {
			f.give(s, a)
		}
	}
}

// know makes a job known that has no assignment.
func (f *fakeAssigner) know(job string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.jobs[job] = nil
}

// listen has it hear Distributors, or not any more, as one that is cut off from them.
func (f *fakeAssigner) listen(hears bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.saysSo, f.deaf = true, !hears
}

// say sends the same to all attached.
func (f *fakeAssigner) say(m *slicerv1.AttachResponse) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := range f.streams {
		f.reply(s, m)
	}
}

// allow changes what a job's config says of rights, and says so.
func (f *fakeAssigner) allow(job string, a *slicerv1.Access) {
	f.mu.Lock()
	if f.access == nil {
		f.access = make(map[string]*slicerv1.Access)
	}
	f.access[job] = a
	f.mu.Unlock()
	f.status(&slicerv1.JobStatus{Job: job, LoadMetric: "requests", Mode: slicerv1.Mode_MODE_AFFINITY, HeartbeatTimeoutMs: 5000, Access: a})
}

// attachedAs is the identity that a Distributor's newest stream was passed on with.
func (f *fakeAssigner) attachedAs(distributor string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.whose[distributor]
}

func (f *fakeAssigner) status(m *slicerv1.JobStatus) {
	f.say(&slicerv1.AttachResponse{Message: &slicerv1.AttachResponse_Status{Status: m}})
}

// prefer tells every Distributor which assigner is preferred for testJob.
func (f *fakeAssigner) prefer(revision int64, id string, candidates ...*slicerv1.Candidate) {
	f.mu.Lock()
	f.pref = &slicerv1.Preference{
		Revision: revision, StoreId: testStore, Candidates: candidates,
		Jobs: []*slicerv1.JobPreference{{Job: testJob, AssignerId: id}},
	}
	p := f.pref
	f.mu.Unlock()
	f.say(&slicerv1.AttachResponse{Message: &slicerv1.AttachResponse_Preference{Preference: p}})
}

// moveTo says that the job is in another store from now on.
func (f *fakeAssigner) moveTo(store uint64) {
	f.mu.Lock()
	none := &slicerv1.Preference{Revision: f.pref.Revision + 1, StoreId: f.pref.StoreId}
	f.pref = &slicerv1.Preference{Revision: 1, StoreId: store, Candidates: f.pref.Candidates, Jobs: f.pref.Jobs}
	p := f.pref
	f.mu.Unlock()
	for _, p := range []*slicerv1.Preference{none, p} {
		f.say(&slicerv1.AttachResponse{Message: &slicerv1.AttachResponse_Preference{Preference: p}})
	}
}

// hear settles everything and returns what was heard since the last time.
func (f *fakeAssigner) hear() (heard []*slicerv1.AttachRequest) {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	heard, f.heard = f.heard, nil
	return heard
}

func (f *fakeAssigner) attachedStreams() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.streams)
}

// told says in one line each what was heard about jobs, heartbeats left out.
func (f *fakeAssigner) told() (lines []string) {
	for _, m := range f.hear() {
		switch m := m.Message.(type) {
		case *slicerv1.AttachRequest_Hello:
			lines = append(lines, "hello "+m.Hello.DistributorId)
		case *slicerv1.AttachRequest_Want:
			w := m.Want
			switch {
			case w.Stop:
				lines = append(lines, "stop "+w.Job)
			default:
				lines = append(lines, fmt.Sprintf("want %s from %s reported %s", w.Job, short(w.Generation), short(w.NewestReported)))
			}
		case *slicerv1.AttachRequest_Reports:
			r := m.Reports
			if r.Job == "" {
				continue
			}
			line := "reports " + r.Job
			if r.Complete {
				line += " complete"
			}
			for _, tr := range r.Reports {
				line += fmt.Sprintf(" %s/%d#%d %s", tr.Task.Name, tr.Task.Incarnation, tr.Report.GetSequence(), assignment.TaskState(tr.Task.State))
				if tr.Disconnected {
					line += " gone"
				}
			}
			lines = append(lines, line)
		case *slicerv1.AttachRequest_Acks:
			a := m.Acks
			line := fmt.Sprintf("acks %s min %s clerks %d slicelets %d", a.Job, short(a.MinGeneration), a.Clerks, a.Slicelets)
			if a.Empty {
				line = "acks " + a.Job + " empty"
			}
			if len(a.Stragglers) > 0 {
				line += fmt.Sprintf(" late %q", a.Stragglers)
			}
			lines = append(lines, line)
		}
	}
	return lines
}

// short is a generation counted from the tests' first.
func short(g int64) string {
	if g >= baseGen {
		return fmt.Sprintf("g%d", g-baseGen)
	}
	return fmt.Sprint(g)
}

func (f *fakeAssigner) call(method string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, method)
	if f.admin != nil {
		return f.admin(method)
	}
	return nil
}

func (f *fakeAssigner) PutJob(_ context.Context, r *slicerv1.PutJobRequest) (*slicerv1.PutJobResponse, error) {
	return &slicerv1.PutJobResponse{Job: &slicerv1.Job{Config: r.Config, Version: 7}}, f.call("put")
}

func (f *fakeAssigner) ListJobs(context.Context, *slicerv1.ListJobsRequest) (*slicerv1.ListJobsResponse, error) {
	return &slicerv1.ListJobsResponse{}, f.call("list")
}

func (f *fakeAssigner) DrainTask(ctx context.Context, _ *slicerv1.DrainTaskRequest) (*slicerv1.DrainTaskResponse, error) {
	if err := f.call("drain"); status.Code(err) == codes.DeadlineExceeded {
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	} else {
		return &slicerv1.DrainTaskResponse{Generation: 9}, err
	}
}

func (f *fakeAssigner) InspectJob(ctx context.Context, _ *slicerv1.InspectJobRequest) (*slicerv1.InspectJobResponse, error) {
	f.mu.Lock()
	f.caller = strings.Join(metadata.ValueFromIncomingContext(ctx, "slicer-identity"), ",")
	f.from = strings.Join(metadata.ValueFromIncomingContext(ctx, "slicer-address"), ",")
	f.mu.Unlock()
	return &slicerv1.InspectJobResponse{AssignerId: f.id}, f.call("inspect")
}
