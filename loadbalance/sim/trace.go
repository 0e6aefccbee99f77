package sim

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/slicer-project/slicer/assignment"
)

// Record is one entry of a trace: at some time a key received some load.
type Record struct {
	UnixMS int64
	Key    string
	// Load is in requests, or whatever the trace counts; 0 to 1e15.
	Load float64
}

// TraceError says where a trace is not what it should be.
type TraceError struct {
	Path  string // empty when the trace has no name
	Line  int    // from 1
	Field string // unix_ms, key, load, time or request; empty when it is the whole line
	Err   error
}

func (e *TraceError) Error() string {
	s := fmt.Sprintf("line %d: ", e.Line)
	if e.Path != "" {
		s = e.Path + ": " + s
	}
	if e.Field != "" {
		s += e.Field + ": "
	}
	return s + e.Err.Error()
}

func (e *TraceError) Unwrap() error { return e.Err }

// TraceReader reads a trace record by record, in constant memory. It is not
// safe for concurrent use.
type TraceReader struct {
	name    string
	file    io.Closer
	next    func() (Record, error)
	field   string // what the form calls the time
	line    int    // where the last record began
	records int
	failed  error
	// Skipped counts the log lines whose request names no path, such as those of
	// clients that sent nothing, or something else than HTTP.
	Skipped int
	// Malformed are the log lines that are left out because they are no entries.
	Malformed LeftOut
	// Early are the records that Windows leaves out because they are out of order.
	Early LeftOut
}

// OpenTrace opens a trace file; see NewTraceReader. Errors name the path.
func OpenTrace(path string) (*TraceReader, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	r, err := NewTraceReader(path, f)
	if err != nil {
		f.Close()
		return nil, err
	}
	r.file = f
	return r, nil
}

// NewTraceReader reads a trace, gzipped or not, that errors call by the name. It
// has one of two forms, which are told apart by the first line:
//
//   - CSV (RFC 4180) of unix_ms,key,load, with or without a line of those names
//     at the top; times are milliseconds since 1970 or since a start of the
//     trace's own, and a record has at most 1 MiB;
//   - the combined or common log format of Apache and nginx: each request is a
//     load of 1 on its path, the query left out.
//
// Real logs have lines that were cut off or garbled. Of a log they are left out
// and counted as Malformed; where they are too many for that, the reader's last
// error is that instead of io.EOF. CSV has to be right throughout.
//
// It fails when nothing can be read, or when the first line is not CSV and
// nothing in the first 4 KiB is an entry of a log.
func NewTraceReader(name string, in io.Reader) (*TraceReader, error) {
	r := &TraceReader{name: name}
	br := bufio.NewReaderSize(in, 1<<16)
	if magic, _ := br.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(br)
		if err != nil {
			return nil, r.explain(&TraceError{Line: 1, Err: fmt.Errorf("gzip header: %w", err)})
		}
		br = bufio.NewReaderSize(z, 1<<16)
	}
	if bom, _ := br.Peek(3); bytes.Equal(bom, []byte("\xef\xbb\xbf")) {
		br.Discard(3)
	}
	head, err := br.Peek(1 << 12)
	line, _, whole := bytes.Cut(head, []byte("\n"))
	switch {
	case !whole && err != nil && !errors.Is(err, io.EOF):
		return nil, r.explain(&TraceError{Line: 1, Err: err})
	case len(head) == 0:
		r.next = func() (Record, error) { return Record{}, io.EOF }
	case looksLikeCSV(line):
		r.field, r.next = csvFields[0], newCSV(br, r).next
	case looksLikeLog(head):
		r.field, r.next = "time", (&logReader{in: br, trace: r}).next
	default:
		return nil, r.explain(&TraceError{Line: 1, Err: fmt.Errorf("%q is neither unix_ms,key,load nor an access log in combined format", assignment.Clip(string(line), 60))})
	}
	return r, nil
}

// Next returns the next record, io.EOF after the last, or an error that wraps a
// *TraceError. After an error it goes on returning it.
func (r *TraceReader) Next() (Record, error) {
	if r.failed != nil {
		return Record{}, r.failed
	}
	rec, err := r.next()
	if err != nil {
		r.failed = r.explain(err)
		return Record{}, r.failed
	}
	r.records++
	return rec, nil
}

// explain completes an error of reading.
func (r *TraceReader) explain(err error) error {
	var te *TraceError
	if errors.As(err, &te) {
		te.Path = r.name
		if errors.Is(te.Err, io.ErrUnexpectedEOF) {
			te.Err = fmt.Errorf("the gzip file is cut off after record %d: %w", r.records, te.Err)
		}
	}
	return err
}

// Close closes the file that OpenTrace opened.
func (r *TraceReader) Close() error {
	if r.file == nil {
		return nil
	}
	return r.file.Close()
}
