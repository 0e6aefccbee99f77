package sim

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
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
	path   string
	file   io.Closer
	next   func() (Record, error)
	failed error
	// Skipped counts the log lines whose request names no path, such as those of
	// clients that sent nothing, or something else than HTTP.
	Skipped int
	// Malformed are the log lines that are left out because they are no entries.
	Malformed Malformed
}

// OpenTrace opens a trace file; see NewTraceReader. Errors name the path.
func OpenTrace(path string) (*TraceReader, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	r, err := NewTraceReader(f)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("trace %s: %w", path, err)
	}
	r.path, r.file = path, f
	return r, nil
}

// NewTraceReader reads a trace, gzipped or not, in one of two forms, which it
// tells apart by the first line:
//
//   - CSV (RFC 4180) of unix_ms,key,load, with or without a line of those names
//     at the top;
//   - the combined or common log format of Apache and nginx: each request is a
//     load of 1 on its path, the query left out.
//
// Real logs have lines that were cut off or garbled. Of a log they are left out
// and counted as Malformed; where they are too many for that, the reader's last
// error is that instead of io.EOF. CSV has to be right throughout.
//
// It fails when nothing can be read, or when the first line is not CSV and
// nothing in the first 4 KiB is an entry of a log.
func NewTraceReader(in io.Reader) (*TraceReader, error) {
	br := bufio.NewReaderSize(in, 1<<16)
	if magic, _ := br.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(br)
		if err != nil {
			return nil, fmt.Errorf("gzip header: %w", err)
		}
		br = bufio.NewReaderSize(z, 1<<16)
	}
	if bom, _ := br.Peek(3); bytes.Equal(bom, []byte("\xef\xbb\xbf")) {
		br.Discard(3)
	}
	head, err := br.Peek(1 << 12)
	if len(head) == 0 && err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("reading: %w", err)
	}
	r := &TraceReader{}
	line, _, _ := bytes.Cut(head, []byte("\n"))
	switch {
	case len(head) == 0:
		r.next = func() (Record, error) { return Record{}, io.EOF }
	case looksLikeCSV(line):
		r.next = newCSV(br).next
	case looksLikeLog(head):
		r.next = (&logReader{in: br, trace: r}).next
	default:
		return nil, &TraceError{Line: 1, Err: fmt.Errorf("%q is neither unix_ms,key,load nor an access log in combined format", clip(string(line)))}
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
		var te *TraceError
		if errors.As(err, &te) {
			te.Path = r.path
		}
		r.failed = err
	}
	return rec, err
}

// Close closes the file that OpenTrace opened.
func (r *TraceReader) Close() error {
	if r.file == nil {
		return nil
	}
	return r.file.Close()
}

func clip(s string) string {
	if len(s) > 60 {
		return s[:57] + "..."
	}
	return s
}
