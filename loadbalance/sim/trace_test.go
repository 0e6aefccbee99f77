package sim_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slicer-project/slicer/loadbalance/sim"
)

func readAll(r *sim.TraceReader) (all []sim.Record, err error) {
	for {
		rec, err := r.Next()
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all = append(all, rec)
	}
}

const (
	csvTrace = "unix_ms,key,load\r\n1000,\"/a,b\"\"c\",2.5\r\n2000,k,0\r\n"
	logTrace = `1.2.3.4 - - [10/Oct/2000:13:55:36 -0700] "GET /a/b?q=1 HTTP/1.0" 200 2326 "http://x/[y] " "Agent \"x\""
1.2.3.5 - - [10/Oct/2000:13:55:37 -0700] "-" 408 -
1.2.3.6 - bob [10/Oct/2000:13:55:38 -0700] "GET http://proxied.example/p HTTP/1.1" 200 5
1.2.3.6 - bob [10/Oct/2000:13:55:38 -0700] "GET /with space\"quote HTTP/1.1" 200 5`
)

func TestTrace(t *testing.T) {
	fromCSV := []sim.Record{{1000, `/a,b"c`, 2.5}, {2000, "k", 0}}
	fromLog := []sim.Record{{971211336000, "/a/b", 1}, {971211338000, "/p", 1}, {971211338000, `/with space\"quote`, 1}}
	for _, c := range []struct {
		name, in string
		want     []sim.Record
	}{
		{"empty", "", nil},
		{"csv", csvTrace, fromCSV},
		{"csv without names", strings.SplitAfterN(csvTrace, "\n", 2)[1], fromCSV},
		{"csv with byte order mark", "\xef\xbb\xbf" + csvTrace, fromCSV},
		{"names only", "unix_ms,key,load\n", nil},
		{"log", logTrace, fromLog},
		{"log with CRLF and an empty line", strings.ReplaceAll(logTrace, "\n", "\r\n\r\n"), fromLog},
	} {
		t.Run(c.name, func(t *testing.T) {
			var zipped bytes.Buffer
			z := gzip.NewWriter(&zipped)
			io.WriteString(z, c.in)
			z.Close()
			for _, in := range []string{c.in, zipped.String()} {
				r, err := sim.NewTraceReader("", strings.NewReader(in))
				if err != nil {
					t.Fatal(err)
				}
				got, err := readAll(r)
				if d := cmp.Diff(c.want, got); d != "" || err != nil {
					t.Errorf("%v %s", err, d)
				}
			}
		})
	}
}

func TestTraceErrors(t *testing.T) {
	for _, c := range []struct {
		name, in, field string
		line            int
	}{
		{"neither", "hello\n", "", 1},
		{"binary", "\x00\x01\x02\xff", "", 1},
		{"time", "1,a,1\n2x,a,1\n", "unix_ms", 2},
		{"empty key", "unix_ms,key,load\n1,a,1\n1,,1\n", "key", 3},
		{"load", "1,a,1\n2,a,-1\n", "load", 2},
		{"load not a number", "1,a,NaN\n", "load", 1},
		{"load beyond all sums", "1,a,1e15\n2,a,1e300\n", "load", 2},
		{"infinite load", "1,a,+Inf\n", "load", 1},
		{"whole numbers", "1000.5,a,1\n", "unix_ms", 1},
		{"seconds", "unix_ms,key,load\n1431857100,a,1\n", "unix_ms", 2},
		{"microseconds", "1431857100000,a,1\n1431857100000000,a,1\n", "unix_ms", 2},
		{"beyond 64 bits", "1,a,1\n-99999999999999999999,a,1\n", "unix_ms", 2},
		{"fields", "1,a,1\n2,a\n", "", 2},
		{"fields over lines", "1,\"a\nb\",1\n2,a,x\n", "load", 3},
		{"quote", "1,\"a\"b,1\n", "", 1},
		{"log time", logTrace + strings.Repeat("\nx - - [10/Octember/2000:13:55:36 -0700] \"GET / HTTP/1.0\"", 11), "time", 5},
		{"log without time", logTrace + strings.Repeat("\nhello", 11), "time", 5},
		{"log request", logTrace + strings.Repeat("\nx - - [10/Oct/2000:13:55:36 -0700] GET", 11), "request", 5},
		{"log where the first entry comes late", "cut off\n" + logTrace + strings.Repeat("\nx", 10), "time", 1},
		{"log with an entry after 4 KiB", strings.Repeat("hello\n", 1000) + logTrace, "", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := sim.NewTraceReader("", strings.NewReader(c.in))
			if err == nil {
				_, err = readAll(r)
			}
			var te *sim.TraceError
			if !errors.As(err, &te) || te.Line != c.line || te.Field != c.field {
				t.Errorf("got %v, want line %d, field %q", err, c.line, c.field)
			}
			if r != nil {
				if _, again := r.Next(); again != err {
					t.Errorf("after the error: %v", again)
				}
			}
		})
	}
}

// Seconds are refused at the start only: eleven days after its own start a trace
// has the same numbers.
func TestTraceOfItsOwnStart(t *testing.T) {
	r, err := sim.NewTraceReader("", strings.NewReader("0,a,1\n1431857100,a,1\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := readAll(r); len(got) != 2 || err != nil {
		t.Errorf("%d records, %v", len(got), err)
	}
}

// endless repeats what it has, as a gzip file of little size can.
type endless string

func (e endless) Read(p []byte) (n int, err error) {
	for n+len(e) <= len(p) {
		n += copy(p[n:], e)
	}
	return n, nil
}

// The longest record of a CSV file is about a MiB, which the reader holds.
func TestLongRecords(t *testing.T) {
	for _, end := range []io.Reader{endless("x"), endless("y\n"), endless("\"\"")} {
		r, err := sim.NewTraceReader("t", io.MultiReader(strings.NewReader("1,"+strings.Repeat("k", 1<<20-10)+",1\n2,\""), end))
		if err != nil {
			t.Fatal(err)
		}
		got, err := readAll(r)
		if want := "t: line 2: the record is longer than 1024 KiB"; len(got) != 1 || err == nil || err.Error() != want {
			t.Errorf("%d records, error %v, want %s", len(got), err, want)
		}
	}
}

// The bound on malformed lines is both ten lines and a hundredth.
func TestMalformed(t *testing.T) {
	const entry, long = "h - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.0\" 200 1 \"-\" \"%s\"\n", 3 << 20
	for _, c := range []struct {
		entries, bad int
		line, agent  string
		fails        bool
	}{
		{1, 10, "hello\n", "", false},
		{1, 11, "hello\n", "", true},
		{1088, 11, "hello\n", "", true},
		{1089, 11, "hello\n", "", false},
		// Of a line that is far too long the beginning counts.
		{2, 1, strings.Repeat("x", long) + "\n", "", false},
		{2, 0, "", strings.Repeat("x", long), false},
		{2, 1, strings.Repeat("\x00", long), "", false},
	} {
		e := strings.Replace(entry, "%s", c.agent, 1)
		r, err := sim.NewTraceReader("", strings.NewReader(e+strings.Repeat(c.line, c.bad)+"\n"+strings.Repeat(e, c.entries-1)))
		if err != nil {
			t.Fatal(err)
		}
		got, err := readAll(r)
		m := r.Malformed
		if len(got) != c.entries || (err != nil) != c.fails || m.Count != c.bad || m.Of != c.entries+c.bad {
			t.Errorf("%d entries and %d malformed lines: %d records, %v, %v", c.entries, c.bad, len(got), err, &m)
		}
		if (m.First != nil) != (c.bad > 0) || m.First != nil && (m.First.Line != 2 || m.First.Field != "time") {
			t.Errorf("the first: %v", m.First)
		}
	}
}

func TestOpenTrace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace.csv.gz")
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	io.WriteString(z, strings.Repeat("1,a,1\n", 1000)+"1,a,x\n")
	z.Close()
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := sim.OpenTrace(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got, err := readAll(r)
	if want := path + `: line 1001: load: "x" is not a number of 0 to 1e+15`; len(got) != 1000 || err == nil || err.Error() != want {
		t.Errorf("%d records, error %v, want %s", len(got), err, want)
	}
	b.Reset()
	z = gzip.NewWriter(&b)
	io.WriteString(z, strings.Repeat("1,a,1\n", 1000))
	z.Close()
	if err := os.WriteFile(path, b.Bytes()[:b.Len()-9], 0o600); err != nil {
		t.Fatal(err)
	}
	cut, err := sim.OpenTrace(path)
	if err != nil {
		t.Fatal(err)
	}
	defer cut.Close()
	got, err = readAll(cut)
	if want := fmt.Sprintf("%s: line %d: the gzip file is cut off after record %d: unexpected EOF", path, len(got)+1, len(got)); !errors.Is(err, io.ErrUnexpectedEOF) || err.Error() != want {
		t.Errorf("a truncated file: %v, want %s", err, want)
	}
	for _, n := range []int{2, 11} {
		if err := os.WriteFile(path, b.Bytes()[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := sim.OpenTrace(path); !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(err.Error(), "the gzip file is cut off after record 0") {
			t.Errorf("%d bytes of a file: %v", n, err)
		}
	}
	if _, err := sim.OpenTrace(path + "x"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}
