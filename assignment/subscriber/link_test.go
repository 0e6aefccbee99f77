package subscriber

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// Whatever a report and a hello say arrives, and only the report's age is another.
func TestAged(t *testing.T) {
	report, hello := new(slicerv1.Report), new(slicerv1.Hello)
	fill(report.ProtoReflect())
	fill(hello.ProtoReflect())
	now := time.Now()
	for _, m := range []*slicerv1.WatchRequest{
		{Message: &slicerv1.WatchRequest_Report{Report: report}},
		{Message: &slicerv1.WatchRequest_Hello{Hello: hello}},
	} {
		before := proto.CloneOf(m)
		got := aged(outgoing{msg: m, made: now.Add(-7 * time.Second)}, now)
		if !proto.Equal(m, before) {
			t.Error("what links share was changed")
		}
		for _, r := range []*slicerv1.Report{before.GetReport(), before.GetHello().GetReport()} {
			if r != nil {
				r.AgeMs = 7000
			}
		}
		if !proto.Equal(got, before) {
			t.Errorf("%v\nwant\n%v", got, before)
		}
	}
}

// fill sets every field to something.
func fill(m protoreflect.Message) {
	for fields, i := m.Descriptor().Fields(), 0; i < fields.Len(); i++ {
		f := fields.Get(i)
		one := func() protoreflect.Value {
			switch f.Kind() {
			case protoreflect.StringKind:
				return protoreflect.ValueOfString("x")
			case protoreflect.BoolKind:
				return protoreflect.ValueOfBool(true)
			case protoreflect.EnumKind:
				return protoreflect.ValueOfEnum(1)
			case protoreflect.FloatKind:
				return protoreflect.ValueOfFloat32(1)
			case protoreflect.DoubleKind:
				return protoreflect.ValueOfFloat64(1)
			case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
				return protoreflect.ValueOfUint32(1)
			case protoreflect.Int64Kind:
				return protoreflect.ValueOfInt64(1)
			}
			return protoreflect.ValueOfUint64(1)
		}
		switch {
		case f.IsList() && f.Message() == nil:
			m.Mutable(f).List().Append(one())
		case f.Message() != nil:
			fill(m.Mutable(f).Message())
		default:
			m.Set(f, one())
		}
	}
}
