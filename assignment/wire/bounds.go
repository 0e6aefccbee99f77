package wire

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/slicer-project/slicer/assignment"
)

// listLimits says how many elements each list of an Assignment or Delta may have.
var listLimits = map[protoreflect.Name]int{
	"tasks": assignment.MaxTasks, "put_tasks": assignment.MaxTasks, "drop_tasks": assignment.MaxTasks,
	"keep": assignment.MaxSlices, "old": assignment.MaxSlices, "new": assignment.MaxSlices,
	"start_delta": assignment.MaxSlices, "replicas": assignment.MaxSlices,
	"owner": assignment.MaxOwnerships, "since": assignment.MaxOwnerships, "since_delta": maxSinceTable,
}

// countLists refuses data in which a list is too long, before it is decoded: the
// decoder makes up to a hundred bytes of each byte that it is given, so that
// counting afterwards would be too late. Occurrences of a list or of the message
// that it is in add up, as they do when decoded.
func countLists(data []byte, md protoreflect.MessageDescriptor, counts map[protoreflect.Name]int) error {
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return protowire.ParseError(n)
		}
		data = data[n:]
		if n = protowire.ConsumeFieldValue(number, kind, data); n < 0 {
			return protowire.ParseError(n)
		}
		value := data[:n]
		data = data[n:]
		field := md.Fields().ByNumber(number)
		if field == nil {
			continue
		}
		if kind == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(value)
		}
		switch {
		case field.IsList():
			name := field.Name()
			if counts[name] += elements(field, kind, value); counts[name] > listLimits[name] {
				return fmt.Errorf("%s: more than %d, which is the most that is allowed", name, listLimits[name])
			}
		case field.Message() != nil && kind == protowire.BytesType:
			if err := countLists(value, field.Message(), counts); err != nil {
				return err
			}
		}
	}
	return nil
}

// elements counts those in one occurrence of a list. A packed one is a row of
// varints, each of which ends with a byte below 128.
func elements(field protoreflect.FieldDescriptor, kind protowire.Type, value []byte) (n int) {
	if kind != protowire.BytesType || field.Message() != nil {
		return 1
	}
	for _, c := range value {
		if c < 0x80 {
			n++
		}
	}
	return n
}
