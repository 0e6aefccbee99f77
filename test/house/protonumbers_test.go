package house

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// TestProtobufNumbers compares the fields and enum values of package slicer.v1 with
// testdata/protonumbers: parts of different versions talk to each other, and stores
// outlive both, so a number never gets another meaning. With -update the test adds what
// is new; a line that stands there may only go together with a "reserved" of its number.
func TestProtobufNumbers(t *testing.T) {
	const file = "testdata/protonumbers"
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	listed := strings.Split(strings.TrimSpace(string(data)), "\n")
	are := protobufNumbers()
	for _, line := range listed {
		if !slices.Contains(are, line) {
			t.Errorf("%s lists %q, which is gone or has changed", file, line)
		}
	}
	for _, line := range are {
		if !slices.Contains(listed, line) && !*update {
			t.Errorf("%q is new: go test ./test/house -run Protobuf -update adds it to %s", line, file)
		}
	}
	if *update && !t.Failed() {
		if err := os.WriteFile(file, []byte(strings.Join(are, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// Within a message the numbers are 1, 2, 3 and so on, but for those that are reserved.
func TestProtobufGaps(t *testing.T) {
	eachMessage(func(m protoreflect.MessageDescriptor) {
		n := m.Fields().Len()
		for i := range m.ReservedRanges().Len() {
			r := m.ReservedRanges().Get(i)
			n += int(r[1] - r[0])
		}
		for i := range m.Fields().Len() {
			if f := m.Fields().Get(i); int(f.Number()) > n {
				t.Errorf("%s: number %d, and only %d are taken or reserved", f.FullName(), f.Number(), n)
			}
		}
	})
}

// protobufNumbers is a line for each field and each enum value, in the files' order.
func protobufNumbers() (lines []string) {
	eachMessage(func(m protoreflect.MessageDescriptor) {
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			kind := f.Kind().String()
			switch {
			case f.Message() != nil:
				kind = string(f.Message().FullName().Name())
			case f.Enum() != nil:
				kind = string(f.Enum().FullName().Name())
			}
			if f.Cardinality() == protoreflect.Repeated {
				kind = "repeated " + kind
			}
			lines = append(lines, fmt.Sprintf("%s %d %s", f.FullName(), f.Number(), kind))
		}
	})
	for _, file := range protoFiles {
		for i := range file.Enums().Len() {
			for j, values := 0, file.Enums().Get(i).Values(); j < values.Len(); j++ {
				lines = append(lines, fmt.Sprintf("%s %d", values.Get(j).FullName(), values.Get(j).Number()))
			}
		}
	}
	return lines
}

func eachMessage(do func(protoreflect.MessageDescriptor)) {
	for _, file := range protoFiles {
		for i := range file.Messages().Len() {
			do(file.Messages().Get(i))
		}
	}
}

var protoFiles = []protoreflect.FileDescriptor{
	slicerv1.File_slicer_v1_admin_proto, slicerv1.File_slicer_v1_assigner_proto, slicerv1.File_slicer_v1_assignment_proto,
	slicerv1.File_slicer_v1_overrides_proto, slicerv1.File_slicer_v1_lease_proto, slicerv1.File_slicer_v1_progress_proto,
	slicerv1.File_slicer_v1_refusal_proto, slicerv1.File_slicer_v1_relay_proto, slicerv1.File_slicer_v1_store_proto,
	slicerv1.File_slicer_v1_subscriber_proto,
}

func TestAllProtobufFiles(t *testing.T) {
	entries, err := os.ReadDir(root(t) + "/proto/slicer/v1")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".proto") {
			n++
		}
	}
	if n != len(protoFiles) {
		t.Errorf("%d files in proto/slicer/v1, %d are looked at", n, len(protoFiles))
	}
}
