package suite

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// common are the checks of every subscriber.
func common() []Check {
	return append([]Check{
		{Name: "hello", Ref: refWatch, run: checkHello,
			Text: "The first message is a Hello: job, role, client id, zone, and nothing in hand; a slicelet's with its task and a first report."},
		{Name: "whole", Ref: refAssignment, run: checkWhole,
			Text: "A whole assignment is put to use and acknowledged by its generation."},
		{Name: "ack-after-use", Ref: refSubscriber, run: checkAckAfterUse,
			Text: "An assignment is in use by the time that it is acknowledged."},
		{Name: "chunks", Ref: refAssignment, run: checkChunks,
			Text: "Chunks of any size are put together in order, with other messages between them."},
		{Name: "large", Ref: refAssignment, run: checkLarge,
			Text: "An assignment of 100,000 slices, in chunks of 512 KiB, is taken."},
		{Name: "delta", Ref: refAssignment, run: checkDelta,
			Text: "Deltas on what is held are applied: slices that move, split and merge, tasks that come and go, replicas."},
		{Name: "delta-wrong-base", Ref: refAssignment, run: checkWrongBase,
			Text: "A delta on what is not held is refused, and asks for the whole."},
		{Name: "checksum", Ref: refAssignment, run: checkChecksum,
			Text: "An assignment that does not have the trailer's checksum is refused, and what was held stays in use."},
		{Name: "checksum-delta", Ref: refAssignment, run: checkChecksumDelta,
			Text: "A delta whose result does not have the trailer's checksum is refused."},
		{Name: "size", Ref: refAssignment, run: checkSize,
			Text: "Chunks that are more or less than the trailer's size are refused."},
		{Name: "compressed", Ref: refAssignment, run: checkCompressed,
			Text: "A subscriber whose Hello says that it reads compressed assignments takes one, and refuses it if it becomes more or less than its trailer says. One whose Hello does not is not checked."},
		{Name: "older", Ref: refAssignment, run: checkOlder,
			Text: "An older generation of the same store never takes the place of a newer one."},
		{Name: "other-store", Ref: refAssignment, run: checkOtherStore,
			Text: "An assignment of another store takes the place of what is held, whatever its generation."},
		{Name: "other-job", Ref: refSubscriber, run: checkOtherJob,
			Text: "An assignment of another job is refused."},
		{Name: "unknown-fields", Ref: refChange, run: checkUnknownFields,
			Text: "Fields and messages that are not known are ignored."},
		{Name: "hostile", Ref: refSubscriber, run: checkHostile,
			Text: "What makes no sense is refused or ignored: it ends no process and changes nothing that is in use."},
		{Name: "lists", Ref: refAssignment, run: checkLists,
			Text: "An assignment with more tasks or owners than are allowed is refused."},
		{Name: "resume", Ref: refWatch, run: checkResume,
			Text: "After an interruption the hello has generation, store id and checksum of what is held, and a delta on that is taken."},
		{Name: "keeps", Ref: refSubscriber, run: checkKeeps,
			Text: "What was in use stays so while no server can be reached."},
		{Name: "failover", Ref: refSubscriber, run: checkFailover,
			Text: "When a Distributor fails the subscriber goes on at another one."},
		{Name: "one-stream", Ref: refWatch, run: checkOneStream,
			Text: "There is one stream, to one Distributor at a time."},
	}, servers()...)
}

func checkHello(t *T) {
	d := t.server("A")
	t.start(startConfig{distributors: []*server{d}})
	w := d.accept()
	h := w.hello()
	want := func(ok bool, want string) {
		if !ok {
			t.fault("a Hello with "+want+" as the first message", show(w.first))
		}
	}
	want(h != nil, "job, role and client id")
	want(h.GetJob() == job, "job "+job)
	role := slicerv1.Role_ROLE_CLERK
	if t.role == Slicelet {
		role = slicerv1.Role_ROLE_SLICELET
	}
	want(h.GetRole() == role, "role "+role.String())
	want(assignment.ValidToken(h.GetClientId(), 128), "a client_id of 1 to 128 printable ASCII characters without space or slash")
	want(h.GetZone() == zone, "zone "+zone)
	want(h.GetGeneration() == 0, "generation 0, as nothing is in hand")
	if t.role == Slicelet {
		task := h.GetTask()
		want(task.GetName() == me && task.GetAddress() == myAddress && task.GetZone() == zone, fmt.Sprintf("the task's name %s, address %s and zone %s", me, myAddress, zone))
		want(task.GetIncarnation() != 0, "an incarnation other than 0")
		want(task.GetWeight() == 1, "weight 1")
		want(h.GetReport().GetState() == slicerv1.TaskState_TASK_STATE_RUNNING, "a report whose state is RUNNING")
	} else {
		want(h.GetClientId() == clientID, "client_id "+clientID)
		want(h.GetTask() == nil && h.GetReport() == nil, "neither task nor report, which are a slicelet's")
	}
	w.status(greeting())
	w.put(storyOf(w).chain(1)[0])
	if w.wait(400*time.Millisecond, func() bool { return w.hellos > 0 }) {
		t.fault("one Hello on a stream", "a second one")
	}
}

func checkWhole(t *T) {
	s, _, w := t.begin()
	s.wantView(nil, "before there is an assignment")
	all := storyOf(w).chain(2)
	for _, a := range all {
		w.put(a)
		w.wantTaken(a, "a whole assignment")
		s.comesToView(a, "after it was sent whole")
	}
}

func checkAckAfterUse(t *T) {
	s, _, w, all := t.give(6)
	s.wantView(all[0], "when it is acknowledged")
	for i, a := range all[1:] {
		w.delta(all[i], a)
		w.wantTaken(a, "a delta on the assignment before")
		s.wantView(a, "when it is acknowledged")
	}
}

func checkChunks(t *T) {
	s, _, w := t.begin()
	a := storyOf(w).chain(1)[0]
	f := whole(a)
	for data := f.Data; len(data) > 0; {
		n := min(7, len(data))
		w.send(chunk(data[:n]))
		if data = data[n:]; len(data)%4 == 0 {
			w.status(greeting())
		}
	}
	w.send(trailer(f.Trailer))
	w.wantTaken(a, "an assignment in chunks of 7 bytes")
	s.comesToView(a, "after it came in chunks of 7 bytes")
}

func checkLarge(t *T) {
	s, _, w := t.begin()
	st := storyOf(w)
	a := st.assign(nil, slicesOf(100_000, turned(0)))
	w.put(a)
	w.wantTaken(a, "an assignment of 100,000 slices")
	b := st.assign(a, slicesOf(100_000, func(i int) []uint32 {
		if i%50 == 0 {
			return turned(1)(i)
		}
		return turned(0)(i)
	}))
	w.delta(a, b)
	w.wantTaken(b, "a delta of 2,000 slices")
	s.comesToView(b, "after a delta of 2,000 slices")
}

func checkDelta(t *T) {
	s, _, w, all := t.give(1)
	st := storyOf(w)
	held := all[0]
	step := func(what string, a *assignment.Assignment) {
		w.delta(held, a)
		w.wantTaken(a, "a delta: "+what)
		s.comesToView(a, "after a delta: "+what)
		held = a
	}
	next := func(tasks []assignment.Task, p assignment.Placement) *assignment.Assignment {
		return build(held, assignment.Header{Job: job, StoreID: store, Generation: held.Generation() + 7}, tasks, p)
	}
	step("some slices move", st.assign(held, slicesOf(8, func(i int) []uint32 {
		if i == 3 || i == 4 {
			return turned(1)(i)
		}
		return turned(0)(i)
	})))
	step("slices are split", st.assign(held, slicesOf(64, func(i int) []uint32 { return []uint32{uint32(i % 3)} })))
	step("slices are merged", st.assign(held, slicesOf(16, turned(0))))
	step("replicas are added", st.assign(held, slicesOf(16, func(i int) []uint32 {
		if i%2 == 0 {
			return []uint32{uint32(i % 4), uint32(i+1) % 4}
		}
		return []uint32{1, 3, 0}
	})))
	tasks := st.tasks()
	step("a task goes", next([]assignment.Task{tasks[0], tasks[1], tasks[3]}, slicesOf(16, func(i int) []uint32 { return []uint32{uint32(i % 3)} })))
	tasks = st.tasks()
	tasks[2].Name, tasks[2].Incarnation, tasks[2].Index = "task-e", 99, 1
	tasks[1], tasks[2] = tasks[2], tasks[1]
	step("a task comes", next(tasks, slicesOf(8, turned(2))))
	tasks = append([]assignment.Task(nil), tasks...)
	tasks[0].Address, tasks[0].Incarnation, tasks[0].State = "192.0.2.77:1", 5, assignment.TaskDraining
	step("a task changes", next(tasks, slicesOf(8, turned(2))))
}

func checkWrongBase(t *T) {
	s, _, w, all := t.give(4)
	// The third on the second, which was never sent.
	w.delta(all[1], all[2])
	w.wantRefused(all[0], "a delta on a generation that is not held")
	s.wantView(all[0], "after a delta on another was refused")
	w.put(all[2])
	w.wantTaken(all[2], "the whole, after a refusal")
	w.delta(all[2], all[3])
	w.wantTaken(all[3], "a delta on it")
	s.comesToView(all[3], "after a delta on what was sent whole")
}

func checkChecksum(t *T) {
	s, _, w, all := t.give(2)
	f := whole(all[1])
	f.Trailer.Checksum ^= 1 << 17
	w.frame(f)
	w.wantRefused(all[0], "a whole assignment with another checksum than the trailer's")
	s.wantView(all[0], "after what had another checksum")
	// What was said of the last one does not stick to the next.
	w.put(all[1])
	w.wantTaken(all[1], "the same with the right checksum")
	s.comesToView(all[1], "after the whole")
}

func checkChecksumDelta(t *T) {
	s, _, w, all := t.give(2)
	f := delta(all[0], all[1])
	f.Trailer.Checksum ^= 1
	w.frame(f)
	w.wantRefused(all[0], "a delta whose result has another checksum than the trailer's")
	s.wantView(all[0], "after a delta whose result had another checksum")
	w.put(all[1])
	w.wantTaken(all[1], "the whole, after a refusal")
}

func checkSize(t *T) {
	s, _, w, all := t.give(3)
	f := whole(all[1])
	w.send(chunk(f.Data[:len(f.Data)-9]), trailer(f.Trailer))
	w.wantRefused(all[0], "chunks without the last 9 bytes")
	s.wantView(all[0], "after chunks that lack 9 bytes")
	// A field that is not known is no damage, but more bytes than the trailer says.
	w.send(chunk(f.Data), chunk(unknownField), trailer(f.Trailer))
	w.wantRefused(all[0], "chunks with more bytes than the trailer says")
	s.wantView(all[0], "after chunks of more bytes than the trailer says")
	w.put(all[2])
	w.wantTaken(all[2], "the whole, after a refusal")
}

func checkCompressed(t *T) {
	s, _, w, all := t.give(6)
	if !w.hello().GetCompressed() {
		return
	}
	compressed := func(a *assignment.Assignment) *wire.Frame {
		f := whole(a).Compressed()
		if f.Trailer.GetWholeSize() == 0 {
			panic(trouble{errors.New("an assignment does not become smaller")})
		}
		return f
	}
	w.frame(compressed(all[1]))
	w.wantTaken(all[1], "a compressed assignment")
	s.comesToView(all[1], "after it was sent compressed")
	for i, c := range []struct {
		what  string
		spoil func(*wire.Frame)
	}{
		{"that becomes more than its trailer says", func(f *wire.Frame) { f.Trailer.WholeSize-- }},
		{"that becomes less than its trailer says", func(f *wire.Frame) { f.Trailer.WholeSize++ }},
		{"that is to become 2^40 bytes", func(f *wire.Frame) { f.Trailer.WholeSize = 1 << 40 }},
		{"that is cut off", func(f *wire.Frame) {
			f.Data = f.Data[:len(f.Data)/2]
			f.Trailer.Size = uint64(len(f.Data))
		}},
	} {
		f, next := compressed(all[i+2]), all[i+2]
		c.spoil(f)
		w.frame(f)
		w.wantRefused(all[i+1], "a compressed assignment "+c.what)
		s.wantView(all[i+1], "after one "+c.what)
		w.put(next)
		w.wantTaken(next, "the whole as it is, after a refusal")
	}
}

func checkOlder(t *T) {
	s, _, w := t.begin()
	all := storyOf(w).chain(3)
	w.put(all[1])
	w.wantTaken(all[1], "a whole assignment")
	w.put(all[0])
	// What is held is newer: that is what may be acknowledged, or the older one refused.
	if a := w.ack(t.patience); a == nil || a.GetGeneration() != int64(all[1].Generation()) {
		t.fault(fmt.Sprintf("an Ack of generation %d, which stays in hand, for an older one", all[1].Generation()), w.sawAck(a))
	}
	s.wantView(all[1], "after an older one came")
	w.delta(all[1], all[2])
	w.wantTaken(all[2], "a delta on what is held")
	s.comesToView(all[2], "after a delta on it")
}

func checkOtherStore(t *T) {
	s, _, w, all := t.give(1)
	h := assignment.Header{Job: job, StoreID: store + 1, Generation: all[0].Generation() - 1000}
	other := build(nil, h, storyOf(w).tasks(), slicesOf(8, turned(2)))
	w.put(other)
	w.wantTaken(other, "an assignment of another store, of a lower generation")
	s.comesToView(other, "after it came from another store")
}

func checkOtherJob(t *T) {
	s, _, w, all := t.give(2)
	h := assignment.Header{Job: "another", StoreID: store, Generation: all[0].Generation() + 1}
	w.put(build(nil, h, storyOf(w).tasks(), slicesOf(8, turned(2))))
	w.wantRefused(all[0], "an assignment of another job")
	s.wantView(all[0], "after an assignment of another job came")
	w.put(all[1])
	w.wantTaken(all[1], "one of its own job")
}

func checkResume(t *T) {
	s, d, w, all := t.give(2)
	w.finish(status.Error(codes.Unavailable, "the server ends"))
	w = d.accept()
	h := w.hello()
	want := slicerv1.Hello{Generation: int64(all[0].Generation()), StoreId: all[0].StoreID(), Checksum: all[0].Checksum()}
	if h.GetGeneration() != want.Generation || h.GetStoreId() != want.StoreId || h.GetChecksum() != want.Checksum {
		t.fault(fmt.Sprintf("a Hello with generation %d, store_id %#x and checksum %#x, which are in hand", want.Generation, want.StoreId, want.Checksum), show(w.first))
	}
	w.status(greeting())
	w.delta(all[0], all[1])
	w.wantTaken(all[1], "a delta on what the hello names")
	s.comesToView(all[1], "after a delta on what the hello names")
}

func checkKeeps(t *T) {
	s, d, _, all := t.give(1)
	d.lis.setDown(true)
	time.Sleep(700 * time.Millisecond)
	s.wantView(all[0], "while no server can be reached")
	d.lis.setDown(false)
	w := d.accept()
	w.status(greeting())
	s.wantView(all[0], "when the server is back")
}

func checkFailover(t *T) {
	servers := []*server{t.server("A"), t.server("B")}
	s := t.start(startConfig{distributors: servers})
	w, at := t.acceptAny(servers...)
	w.status(greeting())
	all := storyOf(w).chain(2)
	w.put(all[0])
	w.wantTaken(all[0], "a whole assignment")
	servers[at].lis.setDown(true)
	w = servers[1-at].accept()
	if got := w.hello().GetGeneration(); got != int64(all[0].Generation()) {
		t.fault(fmt.Sprintf("a Hello with generation %d at the other Distributor", all[0].Generation()), show(w.first))
	}
	w.status(greeting())
	w.delta(all[0], all[1])
	w.wantTaken(all[1], "a delta of the other Distributor's")
	s.comesToView(all[1], "after the other Distributor has sent it")
}

// acceptAny is the first stream at any of the servers, and at which.
func (t *T) acceptAny(servers ...*server) (*watch, int) {
	for deadline := time.Now().Add(t.patience); time.Now().Before(deadline); {
		for i, s := range servers {
			if w := s.next(20 * time.Millisecond); w != nil {
				return w, i
			}
		}
	}
	t.fault(fmt.Sprintf("a Watch stream with a Hello at one of %d servers within %s", len(servers), t.patience), "none")
	return nil, 0
}

func checkOneStream(t *T) {
	servers := []*server{t.server("A"), t.server("B")}
	t.start(startConfig{distributors: servers})
	w, at := t.acceptAny(servers...)
	w.status(greeting())
	w.put(storyOf(w).chain(1)[0])
	for i, s := range servers {
		if s.next(400*time.Millisecond) != nil {
			t.fault("one stream, to one Distributor", fmt.Sprintf("one at %s, and another at %s", servers[at].name, servers[i].name))
		}
	}
}
