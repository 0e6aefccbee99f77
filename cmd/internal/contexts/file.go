package contexts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/slicer-project/slicer/assignment/backoff"
	"github.com/slicer-project/slicer/cmd/internal/run"
)

// lockPause is between two tries to lock a file.
const lockPause = 10 * time.Millisecond

// Load reads a file. That it is not there is fs.ErrNotExist.
func Load(path string) (*Config, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() { // a pipe might never end, nor begin
		return nil, fmt.Errorf("%s: %s is not allowed: want a regular file", path, kind(st.Mode()))
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// One byte more than is allowed, for Parse to complain of.
	data, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err != nil {
		return nil, err
	}
	return Parse(path, data)
}

func kind(m fs.FileMode) string {
	if m.IsDir() {
		return "a folder"
	}
	return "a pipe, socket or device"
}

// Update reads a file, or starts with an empty one, and replaces it by what change makes of
// it, if that reports that it is to be written. The file is readable and writable by its
// owner alone afterwards; if it is a symbolic link, what that names is replaced. Others see
// the file as it was or as it is, whole; of programs that call Update at once one waits for
// the other, until ctx is done.
func Update(ctx context.Context, path string, change func(*Config) (write bool, err error)) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	if to, err := filepath.EvalSymlinks(path); err == nil {
		path = to
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	unlock, err := lock(ctx, path)
	if err != nil {
		return err
	}
	defer unlock()
	c, err := Load(path)
	if errors.Is(err, fs.ErrNotExist) {
		c, err = Parse(path, nil)
	}
	if err != nil {
		return err
	}
	write, err := change(c)
	if err != nil || !write {
		return err
	}
	data, err := c.Format()
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	_, err = run.WriteFile(path, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
	return err
}

// lock makes a file beside path that is there as long as path is being changed.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	name := path + ".lock"
	for {
		f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err == nil {
			_ = f.Close()
			return func() { _ = os.Remove(name) }, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		if !backoff.Sleep(ctx, lockPause) {
			return nil, fmt.Errorf("%s is there: another slicerctl is changing %s, or was killed when it did; remove it if none is", name, path)
		}
	}
}
