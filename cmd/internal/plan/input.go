package plan

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/slicer-project/slicer/loadbalance/sim"
)

// maxSpool bounds what of a pipe is kept in a temporary file.
const maxSpool = 4 << 30

// input is where a trace comes from.
type input struct {
	name   string
	stream io.Reader
	file   *os.File // what stream is, if it is to be closed; nil for standard input
}

// stdin is the trace that is standard input.
const stdin = "-"

// openInput opens a file, or takes in if the path is stdin.
func openInput(path string, in io.Reader) (*input, error) {
	if path == stdin {
		return &input{name: "standard input", stream: in}, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	return &input{name: path, stream: f, file: f}, nil
}

func (i *input) close() {
	if i != nil && i.file != nil {
		i.file.Close()
	}
}

// trace reads it from where it is.
func (i *input) trace(ctx context.Context) (*sim.TraceReader, error) {
	return sim.NewTraceReader(i.name, untilDone{ctx, i.stream})
}

// twice calls read, and makes it readable once more. A pipe of at most that many
// bytes is kept in a temporary file, which is gone when the process is.
func (i *input) twice(ctx context.Context, most int64, read func() error) error {
	if i.file == nil || isPipe(i.file) {
		if err := i.spool(ctx, most); err != nil {
			return err
		}
	}
	if err := read(); err != nil {
		return err
	}
	_, err := i.file.Seek(0, io.SeekStart)
	return err
}

// isPipe reports whether a file can be read once only.
func isPipe(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && !info.Mode().IsRegular() && !info.IsDir()
}

func (i *input) spool(ctx context.Context, most int64) error {
	f, err := os.CreateTemp("", "slicerctl-trace-")
	if err != nil {
		return fmt.Errorf("%s can be read once: %w; give --interval, or a file", i.name, err)
	}
	os.Remove(f.Name()) // the open file stays
	n, err := io.Copy(f, io.LimitReader(untilDone{ctx, i.stream}, most+1))
	if err == nil && n > most {
		err = fmt.Errorf("it has more than %d MiB", most>>20)
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return fmt.Errorf("%s can be read once, and keeping it failed: %w; give --interval, or a file", i.name, err)
	}
	i.close()
	i.stream, i.file = f, f
	return nil
}

// untilDone reads until a context ends.
type untilDone struct {
	ctx context.Context
	in  io.Reader
}

// Read implements io.Reader.
func (r untilDone) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.in.Read(p)
}
