package sim

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

var csvFields = [...]string{"unix_ms", "key", "load"}

// maxRecordLoad bounds a record's load so that no sum of loads overflows.
const maxRecordLoad = 1e15

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
	_, err := strconv.ParseInt(name, 10, 64)
	return err == nil
}

// csvReader reads unix_ms,key,load.
type csvReader struct {
	in    *csv.Reader
	first bool
	line  int // where the last record began
}

func newCSV(in io.Reader) *csvReader {
	r := csv.NewReader(in)
	r.FieldsPerRecord = -1 // counted here, for a better message
	r.ReuseRecord = true
	return &csvReader{in: r, first: true}
}

func (r *csvReader) next() (Record, error) {
	f, err := r.in.Read()
	if err == nil && r.first && f[0] == csvFields[0] {
		f, err = r.in.Read()
	}
	r.first = false
	if err != nil {
		return Record{}, r.explain(err)
	}
	if len(f) != len(csvFields) {
		return Record{}, r.fail("", 0, fmt.Errorf("%d fields, want unix_ms,key,load", len(f)))
	}
	r.line, _ = r.in.FieldPos(0)
	var rec Record
	if rec.UnixMS, err = strconv.ParseInt(f[0], 10, 64); err != nil {
		return Record{}, r.fail(csvFields[0], 0, fmt.Errorf("%q is not a whole number of milliseconds", clip(f[0])))
	}
	if f[1] == "" {
		return Record{}, r.fail(csvFields[1], 1, errors.New("empty"))
	}
	rec.Key = f[1]
	rec.Load, err = strconv.ParseFloat(f[2], 64)
	if err != nil || !(rec.Load >= 0 && rec.Load <= maxRecordLoad) {
		return Record{}, r.fail(csvFields[2], 2, fmt.Errorf("%q is not a number of 0 to %g", clip(f[2]), maxRecordLoad))
	}
	return rec, nil
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
	return &TraceError{Line: r.line + 1, Err: err}
}
