package protokey

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/sourcecontextpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/typepb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/assignment"
)

// requests is a file whose messages have fields of all kinds.
func requests(tb testing.TB) protoreflect.MessageDescriptors {
	file := new(descriptorpb.FileDescriptorProto)
	if err := prototext.Unmarshal([]byte(`
		name: "requests.proto" syntax: "proto3" package: "requests"
		enum_type { name: "Kind" value { name: "NONE" number: 0 } value { name: "SOME" number: 3 } }
		message_type {
			name: "User"
			field { name: "id" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
			field { name: "next" number: 2 type: TYPE_MESSAGE type_name: ".requests.User" label: LABEL_OPTIONAL }
		}
		message_type {
			name: "Request"
			field { name: "user" number: 1 type: TYPE_MESSAGE type_name: ".requests.User" label: LABEL_OPTIONAL }
			field { name: "maybe" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL proto3_optional: true oneof_index: 1 }
			field { name: "raw" number: 3 type: TYPE_BYTES label: LABEL_OPTIONAL }
			field { name: "i32" number: 4 type: TYPE_INT32 label: LABEL_OPTIONAL }
			field { name: "s64" number: 5 type: TYPE_SINT64 label: LABEL_OPTIONAL }
			field { name: "u64" number: 6 type: TYPE_UINT64 label: LABEL_OPTIONAL }
			field { name: "f32" number: 7 type: TYPE_FIXED32 label: LABEL_OPTIONAL }
			field { name: "kind" number: 8 type: TYPE_ENUM type_name: ".requests.Kind" label: LABEL_OPTIONAL }
			field { name: "all" number: 9 type: TYPE_STRING label: LABEL_REPEATED }
			field { name: "one" number: 10 type: TYPE_STRING label: LABEL_OPTIONAL oneof_index: 0 }
			field { name: "other" number: 11 type: TYPE_INT64 label: LABEL_OPTIONAL oneof_index: 0 }
			field { name: "ratio" number: 12 type: TYPE_DOUBLE label: LABEL_OPTIONAL }
			oneof_decl { name: "either" }
			oneof_decl { name: "_maybe" }
		}`), file); err != nil {
		tb.Fatal(err)
	}
	d, err := protodesc.NewFile(file, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return d.Messages()
}

func TestFind(t *testing.T) {
	request := requests(t).ByName("Request")
	for _, c := range []struct {
		paths, text, key string // no key if it is "-"
	}{
		{"user.id", `user { id: "u/1" }`, "u/1"},
		{"user.next.next.id", `user { next { next { id: "far" } } }`, "far"},
		{"user.next.id", `user { id: "u/1" }`, "-"},
		{"user.id", ``, "-"},
		{"user.id", `user { id: "" }`, "-"},
		{"user", `user { id: "u/1" }`, "-"},
		{"user.id.more", `user { id: "u/1" }`, "-"},
		{"maybe", `maybe: "m"`, "m"},
		{"maybe", `maybe: ""`, ""},
		{"maybe", ``, "-"},
		{"raw", `raw: "\001\377"`, "\001\377"},
		{"raw", ``, "-"},
		{"i32", `i32: -7`, "-7"},
		{"i32", ``, "0"},
		{"s64", `s64: -9223372036854775808`, "-9223372036854775808"},
		{"u64", `u64: 18446744073709551615`, "18446744073709551615"},
		{"f32", `f32: 4294967295`, "4294967295"},
		{"kind", `kind: SOME`, "3"},
		{"all", `all: "a"`, "-"},
		{"one", `one: "x"`, "x"},
		{"one", `other: 0`, "-"},
		{"other", `other: 0`, "0"},
		{"ratio", `ratio: 1`, "-"},
		{"absent, user.id, maybe", `user { id: "u/1" } maybe: "m"`, "u/1"},
		{"maybe, user.id", `user { id: "u/1" }`, "u/1"},
		{"absent", `maybe: "m"`, "-"},
	} {
		f, err := New(strings.Split(c.paths, ", ")...)
		if err != nil {
			t.Fatal(c.paths, err)
		}
		m := dynamicpb.NewMessage(request)
		if err := prototext.Unmarshal([]byte(c.text), m); err != nil {
			t.Fatal(c.text, err)
		}
		for range 2 { // the second time it is known where
			key, ok := f.Find("/a/B", m)
			if want := c.key != "-"; ok != want || ok && key != c.key {
				t.Errorf("%s in %q: %q, %v", c.paths, c.text, key, ok)
			}
		}
		if f.String() != c.paths {
			t.Errorf("%q is called %q", c.paths, f)
		}
	}
}

// TestGenerated: messages of generated types, several to one Finder, and what is none.
func TestGenerated(t *testing.T) {
	f, err := New("source_context.file_name", "type_url", "seconds", "value", "string_value", "positive_int_value", "number", "type", "kind")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		request any
		key     string
		ok      bool
	}{
		{&typepb.Type{SourceContext: &sourcecontextpb.SourceContext{FileName: "f"}}, "f", true},
		{&typepb.Type{}, "", false},
		{&anypb.Any{TypeUrl: "u", Value: []byte("v")}, "u", true},
		{&anypb.Any{Value: []byte("v")}, "v", true},
		{&timestamppb.Timestamp{Seconds: 12345}, "12345", true},
		{wrapperspb.Bytes([]byte("raw")), "raw", true},
		{wrapperspb.Double(1), "", false},
		{(*anypb.Any)(nil), "", false},
		// Of proto2, and of fields that tell whether they are set.
		{&descriptorpb.UninterpretedOption{StringValue: []byte{}}, "", true},
		{&descriptorpb.UninterpretedOption{}, "", false},
		{&descriptorpb.UninterpretedOption{PositiveIntValue: proto.Uint64(0)}, "0", true},
		{&descriptorpb.EnumValueDescriptorProto{Number: proto.Int32(-3)}, "-3", true},
		{&descriptorpb.EnumValueDescriptorProto{Name: proto.String("")}, "", false},
		{&descriptorpb.FieldDescriptorProto{Type: descriptorpb.FieldDescriptorProto_TYPE_BYTES.Enum()}, "12", true},
		{&typepb.Field{Number: 5, Kind: typepb.Field_TYPE_BYTES}, "5", true},
		{structpb.NewStringValue("in a oneof"), "in a oneof", true},
		{nil, "", false},
		{"no message", "", false},
	} {
		for range 2 {
			if key, ok := f.Find("", c.request); key != c.key || ok != c.ok {
				t.Errorf("%v: %q, %v", c.request, key, ok)
			}
			// protoreflect finds the same.
			if m, isMessage := c.request.(proto.Message); isMessage {
				p := f.placeOf(m, reflect.TypeOf(m))
				if key, ok := p.find(m.ProtoReflect()); key != c.key || ok != c.ok {
					t.Errorf("%v by protoreflect: %q, %v", c.request, key, ok)
				}
			}
		}
	}
}

func TestNew(t *testing.T) {
	for _, paths := range [][]string{nil, {""}, {"a."}, {".a"}, {"a..b"}, {"a", "1b"}, {"a b"}, {strings.Repeat("a", MaxPathLen+1)}, make([]string, MaxPaths+1)} {
		if _, err := New(paths...); err == nil {
			t.Errorf("%q is allowed", paths)
		} else if bad, ok := errors.AsType[*assignment.FieldError](err); !ok || bad.Field != "key_fields" {
			t.Errorf("%q: %v", paths, err)
		}
	}
}

// TestManyTypes: types beyond those that are remembered are found all the same.
func TestManyTypes(t *testing.T) {
	f, err := New("user.id")
	if err != nil {
		t.Fatal(err)
	}
	f.n.Store(maxKnown - 1)
	for i := range 3 {
		m := dynamicpb.NewMessage(requests(t).ByName("Request"))
		if err := prototext.Unmarshal([]byte(fmt.Sprintf(`user { id: "%d" }`, i)), m); err != nil {
			t.Fatal(err)
		}
		if key, _ := f.Find("", m); key != fmt.Sprint(i) {
			t.Errorf("%q", key)
		}
	}
	n := 0
	f.known.Range(func(any, any) bool { n++; return true })
	if n != 1 {
		t.Errorf("%d are remembered", n)
	}
}

func TestAllocations(t *testing.T) {
	f, err := New("source_context.file_name")
	if err != nil {
		t.Fatal(err)
	}
	var m any = &typepb.Type{SourceContext: &sourcecontextpb.SourceContext{FileName: "f"}}
	if n := testing.AllocsPerRun(100, func() { f.Find("", m) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkFind(b *testing.B) {
	for _, c := range []struct {
		path    string
		message proto.Message
	}{
		{"type_url", &anypb.Any{TypeUrl: "user/4711"}},
		{"source_context.file_name", &typepb.Type{SourceContext: &sourcecontextpb.SourceContext{FileName: "user/4711"}}},
	} {
		b.Run(c.path, func(b *testing.B) {
			f, err := New(c.path)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				f.Find("", c.message)
			}
		})
	}
}
