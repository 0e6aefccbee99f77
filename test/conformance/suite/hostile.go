package suite

import (
	"math/rand/v2"
	"os"
	"path/filepath"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/slicer-project/slicer/assignment"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// unknownField is one that no message has: number 1000, of 5 bytes.
var unknownField = protowire.AppendBytes(protowire.AppendTag(nil, 1000, protowire.BytesType), []byte("later"))

// later adds a field of a later version to a message.
func later[M proto.Message](m M) M {
	m.ProtoReflect().SetUnknown(protoreflect.RawFields(unknownField))
	return m
}

func checkUnknownFields(t *T) {
	s, _, w, all := t.give(3)
	w.send(later(&slicerv1.WatchResponse{}))
	w.status(later(greeting()))
	f := whole(all[1])
	f.Data = append(append([]byte{}, f.Data...), unknownField...)
	f.Trailer.Size += uint64(len(unknownField))
	later(f.Trailer)
	w.frame(f)
	w.wantTaken(all[1], "an assignment with fields that are not known")
	s.comesToView(all[1], "after an assignment with fields that are not known")
	d := delta(all[1], all[2])
	d.Data = append(append([]byte{}, d.Data...), unknownField...)
	d.Trailer.Size += uint64(len(unknownField))
	w.frame(d)
	w.wantTaken(all[2], "a delta with fields that are not known")
}

// raw is bytes as an assignment, whose trailer fits them as far as can be seen from outside.
func raw(data []byte, base, generation int64) []*slicerv1.WatchResponse {
	return []*slicerv1.WatchResponse{chunk(data), trailer(&slicerv1.Trailer{Generation: generation, Base: base, Checksum: 1, Size: uint64(len(data))})}
}

func encode(m proto.Message) []byte {
	data, err := proto.Marshal(m)
	if err != nil {
		panic(trouble{err})
	}
	return data
}

// hostile are assignments that make no sense, by what is wrong with them.
func hostile(held, next *assignment.Assignment) map[string][]*slicerv1.WatchResponse {
	rng := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 1000)
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
	g, base := int64(next.Generation()), int64(held.Generation())
	var good slicerv1.Assignment
	if err := proto.Unmarshal(whole(next).Data, &good); err != nil {
		panic(trouble{err})
	}
	var change slicerv1.Delta
	if err := proto.Unmarshal(delta(held, next).Data, &change); err != nil {
		panic(trouble{err})
	}
	bad := func(f func(m *slicerv1.Assignment)) []*slicerv1.WatchResponse {
		m := proto.CloneOf(&good)
		f(m)
		return raw(encode(m), 0, g)
	}
	badDelta := func(f func(m *slicerv1.Delta)) []*slicerv1.WatchResponse {
		m := proto.CloneOf(&change)
		f(m)
		return raw(encode(m), base, g)
	}
	return map[string][]*slicerv1.WatchResponse{
		"noise":                               raw(noise, 0, g),
		"noise as a delta":                    raw(noise, base, g),
		"nothing":                             {trailer(&slicerv1.Trailer{Generation: g, Checksum: 1})},
		"an owner that is not in the table":   bad(func(m *slicerv1.Assignment) { m.Slices.Owner[0] = 1 << 31 }),
		"fewer owners than slices":            bad(func(m *slicerv1.Assignment) { m.Slices.Owner = m.Slices.Owner[:1] }),
		"no slices":                           bad(func(m *slicerv1.Assignment) { m.Slices = nil }),
		"a slice that begins after the space": bad(func(m *slicerv1.Assignment) { m.Slices.StartDelta[1] = 1 << 63 }),
		"a shift of 2^31":                     bad(func(m *slicerv1.Assignment) { m.Slices.Shift = 1 << 31 }),
		"a first slice that is not at 0":      bad(func(m *slicerv1.Assignment) { m.Slices.StartDelta[0] = 1 }),
		"more replicas than owners":           bad(func(m *slicerv1.Assignment) { m.Slices.Replicas = []uint32{1 << 31, 1 << 31} }),
		"since entries without a table": bad(func(m *slicerv1.Assignment) {
			m.Slices.Since = make([]uint32, len(m.Slices.Owner))
			m.Slices.Since[0] = 200
		}),
		"two tasks of one name":               bad(func(m *slicerv1.Assignment) { m.Tasks[0].Name = m.Tasks[1].Name }),
		"a generation below 0":                bad(func(m *slicerv1.Assignment) { m.Generation = -1 }),
		"edits that keep 2^32-1 slices":       badDelta(func(m *slicerv1.Delta) { m.Keep = []uint32{1<<32 - 1}; m.Old = []uint32{1}; m.New = []uint32{1} }),
		"edits in lists of different lengths": badDelta(func(m *slicerv1.Delta) { m.Keep = append(m.Keep, 1) }),
		"edits without new slices":            badDelta(func(m *slicerv1.Delta) { m.Slices = nil }),
		"a task dropped that there is not":    badDelta(func(m *slicerv1.Delta) { m.DropTasks = []uint32{1 << 31} }),
	}
}

func checkHostile(t *T) {
	s, d, w, all := t.give(2)
	bad := hostile(all[0], all[1])
	for _, what := range sorted(bad) {
		w.send(bad[what]...)
		w.wantRefused(all[0], "an assignment that makes no sense: "+what)
		s.wantView(all[0], "after one that makes no sense: "+what)
		// Several refusals in a row are reason enough to leave; a good one ends the row.
		w.put(all[0])
		w.wantTaken(all[0], "the whole, after a refusal")
	}
	// Messages whose numbers are out of any range.
	m := greeting()
	m.ConvergedGeneration, m.ReportIntervalMs, m.RepeatMs, m.LoadMetric, m.Mode = -1, -1<<63, -1<<63, "nonsense", 77
	m.ClientIndex, m.Subscribers = new(uint32(1<<32-1)), 1<<32-1
	m.Stragglers = make([]string, 10_000)
	for range 1000 {
		m.Conditions = append(m.Conditions, &slicerv1.TaskCondition{Task: "no-such-task", Level: 1<<32 - 1, PauseMs: 1<<32 - 1})
	}
	w.status(m)
	w.send(&slicerv1.WatchResponse{}, &slicerv1.WatchResponse{Message: &slicerv1.WatchResponse_Quotas{Quotas: &slicerv1.Quotas{
		Customer: []uint64{3, 2, 1}, Share: []float32{-1}, Limits: &slicerv1.Limits{Customers: []*slicerv1.Limit{{Rate: -1}, {Rate: -1}}},
	}}})
	w.status(greeting())
	// It is up to the subscriber whether it leaves a server that speaks so.
	if w.gone(0) {
		w = d.accept()
		w.status(greeting())
	}
	w.put(all[1])
	w.wantTaken(all[1], "the next assignment, after messages with numbers out of any range")
	s.comesToView(all[1], "after messages with numbers out of any range")
}

func checkLists(t *T) {
	s, _, w, all := t.give(2)
	// An empty task takes two bytes, and much more when it is decoded.
	var many []byte
	for range assignment.MaxTasks + 1 {
		many = protowire.AppendBytes(protowire.AppendTag(many, 6, protowire.BytesType), nil)
	}
	w.send(raw(many, 0, int64(all[1].Generation()))...)
	w.wantRefused(all[0], "an assignment of 2^17+1 tasks")
	owners := make([]byte, assignment.MaxOwnerships+1) // each 0, packed
	columns := protowire.AppendBytes(protowire.AppendTag(nil, 4, protowire.BytesType), owners)
	data := protowire.AppendBytes(protowire.AppendTag(nil, 7, protowire.BytesType), columns)
	for len(data) > 0 {
		n := min(len(data), 512<<10)
		w.send(chunk(data[:n]))
		data = data[n:]
	}
	w.send(trailer(&slicerv1.Trailer{Generation: int64(all[1].Generation()), Checksum: 1, Size: uint64(len(columns)) + 5}))
	w.wantRefused(all[0], "an assignment of 2^23+1 owners")
	s.wantView(all[0], "after lists that are too long")
	w.put(all[1])
	w.wantTaken(all[1], "the next assignment")
}

func checkCacheFile(t *T) {
	file := filepath.Join(t.tempDir(), "cache")
	d := t.server("A")
	start := startConfig{distributors: []*server{d}, cacheFile: file}
	s := t.start(start)
	w := d.accept()
	w.status(greeting())
	a := storyOf(w).chain(1)[0]
	w.put(a)
	w.wantTaken(a, "a whole assignment")
	s.quit()
	info, err := os.Stat(file)
	if err != nil || info.Size() == 0 {
		panic(unsupported{"start with a cache_file"})
	}
	d.lis.setDown(true)
	s = t.start(start)
	t.eventually("the generation of the cache file in hand", func() (bool, string) {
		got := s.generation()
		return got == int64(a.Generation()), "generation " + jsonOf(got)
	})
	s.quit()
	data, err := os.ReadFile(file)
	if err == nil {
		data[len(data)/2] ^= 0x55
		err = os.WriteFile(file, data, 0o600)
	}
	if err != nil {
		panic(trouble{err})
	}
	s = t.start(start)
	if got := s.generation(); got != 0 {
		t.fault("a cache file ignored in which a byte is wrong", "generation "+jsonOf(got))
	}
}
