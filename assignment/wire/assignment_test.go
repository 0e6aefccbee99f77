package wire_test

import (
	"bytes"
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

func TestAssignmentRoundTrip(t *testing.T) {
	for seed := range uint64(200) {
		a := odd(t, seed, 10)
		data, err := wire.EncodeAssignment(a)
		if err != nil {
			t.Fatal(err)
		}
		b, err := wire.DecodeAssignment(data)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if diff := cmp.Diff(form(a), form(b)); diff != "" || a.Checksum() != b.Checksum() {
			t.Fatalf("seed %d: %s", seed, diff)
		}
		again, err := wire.EncodeAssignment(b)
		if err != nil || !bytes.Equal(data, again) {
			t.Fatalf("seed %d: encodes otherwise after decoding: %v", seed, err)
		}
	}
}

func TestDeltaRoundTrip(t *testing.T) {
	for seed := range uint64(200) {
		base, next := odd(t, seed, 10), odd(t, seed+1, 12)
		d, err := assignment.Diff(base, next)
		if err != nil {
			t.Fatal(err)
		}
		data, err := wire.EncodeDelta(d)
		if err != nil {
			t.Fatal(err)
		}
		back, err := wire.DecodeDelta(data)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		got, err := assignment.Apply(base, back)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if diff := cmp.Diff(form(next), form(got)); diff != "" || got.Checksum() != next.Checksum() {
			t.Fatalf("seed %d: %s", seed, diff)
		}
	}
}

// The promise of the format: at most 10 bytes a slice, and a delta in
// proportion to what it changes.
func TestSizes(t *testing.T) {
	const n = 100_000
	a := big(t, n, 1000)
	data, err := wire.EncodeAssignment(a)
	if err != nil {
		t.Fatal(err)
	}
	var m slicerv1.Assignment
	if err := proto.Unmarshal(data, &m); err != nil {
		t.Fatal(err)
	}
	columns := proto.Size(m.Slices)
	t.Logf("%.2f bytes a slice, %.2f with the task table of %.1f bytes a task", float64(columns)/n, float64(len(data))/n, float64(len(data)-columns)/1000)
	if columns > 10*n {
		t.Errorf("%d bytes for %d slices, want at most 10 each", columns, n)
	}
	frame, err := wire.DeltaFrame(a, changed(t, a, 100))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("a delta of 1 %% is %d bytes, %.2f %% of the whole", len(frame.Data), 100*float64(len(frame.Data))/float64(len(data)))
	if len(frame.Data) > len(data)/50 {
		t.Errorf("a delta of 1 %% is %d bytes of %d, want at most 2 %%", len(frame.Data), len(data))
	}
}

// edited encodes an assignment after a change to its message.
func edited(t *testing.T, change func(m *slicerv1.Assignment)) []byte {
	t.Helper()
	data, err := wire.EncodeAssignment(odd(t, 1, 10))
	if err != nil {
		t.Fatal(err)
	}
	var m slicerv1.Assignment
	if err := proto.Unmarshal(data, &m); err != nil {
		t.Fatal(err)
	}
	change(&m)
	if data, err = proto.Marshal(&m); err != nil {
		t.Fatal(err)
	}
	return data
}

func TestDecodeAssignmentRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		data []byte
		want string
	}{
		"empty":            {nil, "job name"},
		"not protobuf":     {[]byte("hello"), ""},
		"job":              {edited(t, func(m *slicerv1.Assignment) { m.Job = "a/b" }), "job name"},
		"generation":       {edited(t, func(m *slicerv1.Assignment) { m.Generation = -1; m.Slices.Since, m.Slices.SinceDelta = nil, nil }), "generation: -1"},
		"no slices":        {edited(t, func(m *slicerv1.Assignment) { m.Slices = nil }), "slices: 0"},
		"shift":            {edited(t, func(m *slicerv1.Assignment) { m.Slices.Shift = 63 }), "shift 63"},
		"shift wild":       {edited(t, func(m *slicerv1.Assignment) { m.Slices.Shift = math.MaxUint32 }), "shift"},
		"start past":       {edited(t, func(m *slicerv1.Assignment) { m.Slices.StartDelta[1] = 16 }), "slice 1 starts past"},
		"start wraps":      {edited(t, func(m *slicerv1.Assignment) { m.Slices.StartDelta[1] = math.MaxUint64 }), "slice 1 starts past"},
		"start twice":      {edited(t, func(m *slicerv1.Assignment) { m.Slices.StartDelta[1] = 0 }), "slice start"},
		"replicas":         {edited(t, func(m *slicerv1.Assignment) { m.Slices.Replicas[0] = math.MaxUint32 }), "replicas for"},
		"replicas missing": {edited(t, func(m *slicerv1.Assignment) { m.Slices.Replicas = nil }), "owners"},
		"owner":            {edited(t, func(m *slicerv1.Assignment) { m.Slices.Owner[0] = 77 }), "owner: 77"},
		"since short":      {edited(t, func(m *slicerv1.Assignment) { m.Slices.Since = m.Slices.Since[1:] }), "since entries"},
		"since entry":      {edited(t, func(m *slicerv1.Assignment) { m.Slices.Since[0] = 256 }), "since entry 0 is 256"},
		"since table":      {edited(t, func(m *slicerv1.Assignment) { m.Slices.SinceDelta[0] = 100 }), "before 0"},
		"since wraps":      {edited(t, func(m *slicerv1.Assignment) { m.Slices.SinceDelta[0] = math.MaxUint64 }), "before 0"},
		"since table long": {edited(t, func(m *slicerv1.Assignment) { m.Slices.SinceDelta = make([]uint64, 256) }), "since_delta: more than 255"},
		"task":             {edited(t, func(m *slicerv1.Assignment) { m.Tasks[0].Weight = math.NaN() }), "task weight: NaN"},
		"task state":       {edited(t, func(m *slicerv1.Assignment) { m.Tasks[0].State = 9 }), "task state: 9"},
		"task state low":   {edited(t, func(m *slicerv1.Assignment) { m.Tasks[0].State = -1 }), "task state: -1"},
		"tasks":            {bytes.Repeat([]byte{6<<3 | 2, 0}, assignment.MaxTasks+1), "tasks: more than 131072"},
		"cut short":        {edited(t, func(m *slicerv1.Assignment) {})[:100], ""},
		"too large":        {make([]byte, wire.MaxEncodedSize+1), "268435457 bytes"},
	} {
		a, err := wire.DecodeAssignment(tc.data)
		if a != nil || !errors.Is(err, wire.ErrMalformed) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, %v, want %s", name, a, err, tc.want)
		}
	}
}

func TestDecodeDeltaRefuses(t *testing.T) {
	d, err := assignment.Diff(odd(t, 1, 10), odd(t, 2, 12))
	if err != nil {
		t.Fatal(err)
	}
	whole, err := wire.EncodeDelta(d)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		change func(m *slicerv1.Delta)
		want   string
	}{
		"edit columns": {func(m *slicerv1.Delta) { m.Old = m.Old[1:] }, "edit columns of different lengths"},
		"task":         {func(m *slicerv1.Delta) { m.PutTasks = append(m.PutTasks, &slicerv1.Task{}) }, "task name"},
		"columns":      {func(m *slicerv1.Delta) { m.Slices.Shift = 64 }, "shift 64"},
		"drops":        {func(m *slicerv1.Delta) { m.DropTasks = make([]uint32, assignment.MaxTasks+1) }, "drop_tasks: more than 131072"},
		"edits":        {func(m *slicerv1.Delta) { m.Keep = make([]uint32, assignment.MaxSlices+1) }, "keep: more than 4194304"},
	} {
		var m slicerv1.Delta
		if err := proto.Unmarshal(whole, &m); err != nil {
			t.Fatal(err)
		}
		tc.change(&m)
		data, err := proto.Marshal(&m)
		if err != nil {
			t.Fatal(err)
		}
		if d, err := wire.DecodeDelta(data); d != nil || !errors.Is(err, wire.ErrMalformed) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %s", name, err, tc.want)
		}
	}
}

// What a newer version adds to the messages is passed over.
func TestDecodeIgnoresUnknownFields(t *testing.T) {
	a := odd(t, 1, 10)
	data, err := wire.EncodeAssignment(a)
	if err != nil {
		t.Fatal(err)
	}
	data = protowire.AppendTag(data, 100, protowire.BytesType)
	data = protowire.AppendBytes(data, []byte("later"))
	data = protowire.AppendTag(data, 101, protowire.StartGroupType)
	data = protowire.AppendTag(data, 101, protowire.EndGroupType)
	if b, err := wire.DecodeAssignment(data); err != nil || b.Checksum() != a.Checksum() {
		t.Errorf("%v, %v", b, err)
	}
}

// A list cannot be smuggled in by halves or unpacked.
func TestListsAddUp(t *testing.T) {
	var half []byte
	for range assignment.MaxSlices/2 + 1 {
		half = append(half, 1)
	}
	column := protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), half)
	slicesField := protowire.AppendBytes(protowire.AppendTag(nil, 7, protowire.BytesType), column)
	one := protowire.AppendVarint(protowire.AppendTag(nil, 2, protowire.VarintType), 1)
	for name, data := range map[string][]byte{
		"two messages": append(bytes.Clone(slicesField), slicesField...),
		"two columns":  protowire.AppendBytes(protowire.AppendTag(nil, 7, protowire.BytesType), append(bytes.Clone(column), column...)),
		"unpacked":     protowire.AppendBytes(protowire.AppendTag(nil, 7, protowire.BytesType), bytes.Repeat(one, assignment.MaxSlices+1)),
	} {
		if _, err := wire.DecodeAssignment(data); err == nil || !strings.Contains(err.Error(), "start_delta: more than 4194304") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A decoder given little does not take much memory, whatever it is given.
func TestDecodeMemory(t *testing.T) {
	var packed []byte
	for number := protowire.Number(2); number <= 6; number++ {
		packed = protowire.AppendBytes(protowire.AppendTag(packed, number, protowire.BytesType), make([]byte, 1<<18))
	}
	var emptyTasks, emptyPuts []byte
	for range 1 << 20 {
		emptyTasks = append(emptyTasks, 6<<3|2, 0)
		emptyPuts = append(emptyPuts, 7<<3|2, 0)
	}
	tag := func(number protowire.Number, data []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), data)
	}
	for name, data := range map[string][]byte{
		"tasks":     emptyTasks,
		"puts":      emptyPuts,
		"columns":   tag(7, packed),
		"claims":    {7<<3 | 2, 0xff, 0xff, 0xff, 0x7f, 2<<3 | 2, 0xff, 0xff, 0xff, 0x7f},
		"one slice": edited(t, func(m *slicerv1.Assignment) { m.Slices.Shift = 62; m.Slices.StartDelta = []uint64{0} }),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _ = wire.DecodeAssignment(data)
		_, _ = wire.DecodeDelta(data)
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 64<<20 {
			t.Errorf("%s: %d MiB from %d bytes", name, took>>20, len(data))
		}
	}
}
