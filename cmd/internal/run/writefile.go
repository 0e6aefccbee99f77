package run

import (
	"errors"
	"io"
	"os"
	"path/filepath"
)

// WriteFile puts a file in its place once it is whole and on disk, readable and writable by
// its owner alone, and returns its size in bytes. On an error what was there stays.
func WriteFile(name string, write func(io.Writer) error) (size int64, err error) {
	dir := filepath.Dir(name)
	f, err := os.CreateTemp(dir, "."+filepath.Base(name)+".*") // readable by its owner alone
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	err = write(f)
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		size, err = f.Seek(0, io.SeekEnd)
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return 0, err
	}
	d, err := os.Open(dir)
	if err != nil {
		return 0, err
	}
	return size, errors.Join(d.Sync(), d.Close())
}
