package history

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/slicer-project/slicer/assignment"
)

// fields reads a line's fields one after the other, and remembers the first
// that is not what it should be.
type fields struct {
	rest []string
	err  error
}

func (f *fields) text() string {
	if len(f.rest) == 0 {
		f.fail("a field is missing")
		return ""
	}
	s := f.rest[0]
	f.rest = f.rest[1:]
	return s
}

func (f *fields) fail(format string, args ...any) {
	if f.err == nil {
		f.err = fmt.Errorf(format, args...)
	}
}

func (f *fields) name() string {
	s := f.text()
	if s == "" || strings.Contains(s, ",") {
		f.fail("%q is no name", s)
	}
	return s
}

func (f *fields) number() int64 {
	s := f.text()
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		f.fail("%q is no number", s)
	}
	return n
}

func (f *fields) value() string {
	s, ok := strings.CutPrefix(f.text(), "=")
	if !ok {
		f.fail("%q is no value", s)
	}
	return s
}

// span reads two times in order.
func (f *fields) span() (began, ended time.Duration) {
	began, ended = time.Duration(f.number()), time.Duration(f.number())
	if ended < began {
		f.fail("it ends at %d before it begins at %d", ended, began)
	}
	return began, ended
}

func (f *fields) list() []string {
	head, rest, more := strings.Cut(f.text(), ",")
	if head != "." {
		f.fail("%q does not begin a list", head)
	}
	if !more {
		return nil
	}
	return strings.Split(rest, ",")
}

func (f *fields) slices() (out []assignment.Slice) {
	for _, s := range f.list() {
		from, to, _ := strings.Cut(s, "-")
		start, err1 := strconv.ParseUint(from, 10, 64)
		end, err2 := strconv.ParseUint(to, 10, 64)
		if err1 != nil || err2 != nil || start >= end || assignment.SliceKey(end) > assignment.KeyspaceEnd {
			f.fail("%q is no slice", s)
			return nil
		}
		out = append(out, assignment.Slice{Start: assignment.SliceKey(start), End: assignment.SliceKey(end)})
	}
	return out
}

func (f *fields) done() error {
	if len(f.rest) > 0 {
		f.fail("%d fields too many", len(f.rest))
	}
	return f.err
}
