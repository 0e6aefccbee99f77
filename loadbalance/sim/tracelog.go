package sim

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/slicer-project/slicer/assignment"
)

// logReader reads access logs in common or combined format:
//
//	host ident user [10/Oct/2000:13:55:36 -0700] "GET /path HTTP/1.0" 200 2326 ...
type logReader struct {
	in    *bufio.Reader
	trace *TraceReader // whose counts it keeps
}

const logTime = "02/Jan/2006:15:04:05 -0700"

// maxLogLine is far above any server's own limit.
const maxLogLine = 1 << 20

// looksLikeLog says that a line of the first bytes of a file is an entry.
func looksLikeLog(head []byte) bool {
	for line := range bytes.Lines(head) {
		if _, _, err := parseLog(strings.TrimRight(string(line), "\r\n")); err == nil {
			return true
		}
	}
	return false
}

func (r *logReader) next() (Record, error) {
	bad := &r.trace.Malformed
	for {
		line, err := r.read()
		if err == io.EOF {
			if err := bad.check(""); err != nil {
				return Record{}, err
			}
			return Record{}, io.EOF
		}
		if err != nil {
			return Record{}, &TraceError{Line: r.trace.line, Err: err}
		}
		if line == "" {
			continue
		}
		bad.Of++
		at, key, wrong := parseLog(line)
		switch {
		case wrong != nil:
			wrong.Path, wrong.Line = r.trace.name, r.trace.line
			bad.add("malformed lines", wrong)
		case key == "":
			r.trace.Skipped++
		default:
			return Record{UnixMS: at.UnixMilli(), Key: key, Load: 1}, nil
		}
	}
}

// read returns the next line without its end, and without what is beyond
// maxLogLine.
func (r *logReader) read() (string, error) {
	var long []byte
	r.trace.line++
	for {
		part, err := r.in.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			long = append(long, part[:min(len(part), maxLogLine-len(long))]...)
			continue
		case err == io.EOF && len(long)+len(part) == 0:
			return "", io.EOF
		case err != nil && err != io.EOF:
			return "", err
		}
		part = part[:min(len(part), maxLogLine-len(long))]
		return strings.TrimRight(string(append(long, part...)), "\r\n"), nil
	}
}

// parseLog reads one line. The key is empty when the request has no path.
func parseLog(line string) (at time.Time, key string, wrong *TraceError) {
	_, rest, ok := strings.Cut(line, " [")
	stamp, rest, closed := strings.Cut(rest, "] ")
	if !ok || !closed {
		return at, "", &TraceError{Line: 1, Field: "time", Err: fmt.Errorf("no [%s] in %q", logTime, assignment.Clip(line, 60))}
	}
	at, err := time.Parse(logTime, stamp)
	if err != nil {
		return at, "", &TraceError{Line: 1, Field: "time", Err: fmt.Errorf("%q is not like %s", assignment.Clip(stamp, 60), logTime)}
	}
	request, ok := quoted(rest)
	if !ok {
		return at, "", &TraceError{Line: 1, Field: "request", Err: fmt.Errorf("no quoted request in %q", assignment.Clip(rest, 60))}
	}
	return at, pathOf(request), nil
}

// quoted returns what stands between the quotes that s begins with; a quote
// after a backslash is part of it.
func quoted(s string) (string, bool) {
	if s == "" || s[0] != '"' {
		return "", false
	}
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return s[1:i], true
		}
	}
	return "", false
}

// pathOf is the path that a request line asks for, as the client wrote it and
// without the query; empty if it asks for none.
func pathOf(request string) string {
	_, target, ok := strings.Cut(request, " ")
	if !ok {
		return ""
	}
	if i := strings.LastIndex(target, " HTTP/"); i >= 0 {
		target = target[:i]
	}
	target, _, _ = strings.Cut(target, "?")
	target, _, _ = strings.Cut(target, "#")
	if strings.HasPrefix(target, "/") {
		return target
	}
	// A proxy's request line holds a whole URL.
	if u, err := url.Parse(target); err == nil && u.Host != "" {
		return "/" + strings.TrimPrefix(u.EscapedPath(), "/")
	}
	return ""
}
