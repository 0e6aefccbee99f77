package sim

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/slicer-project/slicer/assignment"
)

var csvFields = [...]string{"unix_ms", "key", "load"}

const (
	// maxRecordLoad bounds a record's load so that no sum of loads overflows.
	maxRecordLoad = 1e15
	// maxRecordBytes bounds a record as maxLogLine does a line.
	maxRecordBytes = 1 << 20
	// maxUnixMS is the year 2100. Microseconds are far beyond it.
	maxUnixMS int64 = 4_102_444_800_000
	// Between these a trace that gives milliseconds would begin in January or
	// February of 1970, one that gives seconds between 2001 and 2100.
	leastSeconds, mostSeconds = 1_000_000_000, maxUnixMS / 1000
)

// looksLikeCSV says that a first line is the header or a first record.
func looksLikeCSV(line []byte) bool {
	first, _, ok := bytes.Cut(line, []byte(","))
	if !ok {
		return false
	}
	name := strings.Trim(strings.TrimSpace(string(first)), `"`)
	if name == csvFields[0] {
		return true
	}
	_, err := strconv.ParseFloat(name, 64) // even if not a whole number, for a better message
	return err == nil || errors.Is(err, strconv.ErrRange)
}

// csvReader reads unix_ms,key,load.
type csvReader struct {
	in     *csv.Reader
	bytes  *io.LimitedReader // what the next record may be read from
	trace  *TraceReader      // whose line it keeps
	header bool              // may come next
}

// errTooLong has no line of its own: it is where the record began.
var errTooLong = fmt.Errorf("the record is longer than %d KiB", maxRecordBytes>>10)

func newCSV(in io.Reader, trace *TraceReader) *csvReader {
	bytes := &io.LimitedReader{R: in}
	r := csv.NewReader(tooLong{bytes})
	r.FieldsPerRecord = -1 // counted here, for a better message
	r.ReuseRecord = true
	return &csvReader{in: r, bytes: bytes, trace: trace, header: true}
}

// tooLong fails where a limit ends.
type tooLong struct{ *io.LimitedReader }

func (r tooLong) Read(p []byte) (int, error) {
	if r.N <= 0 {
		return 0, errTooLong
	}
	return r.LimitedReader.Read(p)
}

func (r *csvReader) next() (Record, error) {
	r.bytes.N = maxRecordBytes
	f, err := r.in.Read()
	if err == nil && r.header && f[0] == csvFields[0] {
		f, err = r.in.Read()
	}
	r.header = false
	if err != nil {
		return Record{}, r.explain(err)
	}
	if len(f) != len(csvFields) {
		return Record{}, r.fail("", 0, fmt.Errorf("%d fields, want unix_ms,key,load", len(f)))
	}
	r.trace.line, _ = r.in.FieldPos(0)
	var rec Record
	if rec.UnixMS, err = r.time(f[0]); err != nil {
		return Record{}, r.fail(csvFields[0], 0, err)
	}
	if f[1] == "" {
		return Record{}, r.fail(csvFields[1], 1, errors.New("empty"))
	}
	rec.Key = f[1]
	rec.Load, err = strconv.ParseFloat(f[2], 64)
	if err != nil || !(rec.Load >= 0 && rec.Load <= maxRecordLoad) {
		return Record{}, r.fail(csvFields[2], 2, fmt.Errorf("%q is not a number of 0 to %g", assignment.Clip(f[2], 60), maxRecordLoad))
	}
	return rec, nil
}

// time parses a number of milliseconds, and refuses those that are of another unit.
func (r *csvReader) time(s string) (int64, error) {
	ms, err := strconv.ParseInt(s, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange) || ms > maxUnixMS || ms < -maxUnixMS:
		return 0, fmt.Errorf("%s is not allowed: want milliseconds, %d to %d (the year 2100): divide microseconds by 1000", assignment.Clip(s, 60), -maxUnixMS, maxUnixMS)
	case err != nil:
		return 0, fmt.Errorf("%q is not a whole number of milliseconds", assignment.Clip(s, 60))
	case r.trace.records == 0 && ms >= leastSeconds && ms <= mostSeconds:
		return 0, fmt.Errorf("%d is not allowed at the start: want milliseconds, since 1970 or since a start of its own: multiply seconds by 1000", ms)
	}
	return ms, nil
}

func (r *csvReader) fail(field string, n int, err error) error {
	line, _ := r.in.FieldPos(n)
	return &TraceError{Line: line, Field: field, Err: err}
}

// explain gives csv's own errors, and those of reading, their line.
func (r *csvReader) explain(err error) error {
	if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return io.EOF
	}
	if pe := (*csv.ParseError)(nil); errors.As(err, &pe) {
		return &TraceError{Line: pe.Line, Err: pe.Err}
	}
	return &TraceError{Line: r.trace.line + 1, Err: err}
}
