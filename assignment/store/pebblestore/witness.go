package pebblestore

import (
	"encoding/binary"
	"errors"
	"io"
	"os"

	"github.com/cespare/xxhash/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/slicer-project/slicer/assignment/store/internal/record"
)

const (
	// witnessName is a file beside Pebble's.
	witnessName = "acknowledged"
	// witnessSlot keeps the two slots in different sectors.
	witnessSlot = 4096
	witnessSize = 16
)

// witness is a file that holds the number of the last batch that was
// acknowledged. A log whose end is damaged, or cut off, looks to Pebble like one
// that the machine's death has left unfinished, and it goes on without that end;
// the witness tells the two apart.
type witness struct {
	file vfs.File
	path string
	last uint64
}

// openWitness reads the file, which it makes if it is not there.
func openWitness(fs vfs.FS, dir string) (w *witness, err error) {
	w = &witness{path: fs.PathJoin(dir, witnessName)}
	_, err = fs.Stat(w.path)
	fresh := errors.Is(err, os.ErrNotExist)
	if err != nil && !fresh {
		return nil, err
	}
	if w.file, err = fs.OpenReadWrite(w.path, vfs.WriteCategoryUnspecified); err != nil {
		return nil, err
	}
	if fresh {
		err = w.create(fs, dir)
	} else {
		err = w.read()
	}
	if err != nil {
		return nil, errors.Join(err, w.file.Close())
	}
	return w, nil
}

func (w *witness) create(fs vfs.FS, dir string) error {
	if err := w.write(0); err != nil {
		return err
	}
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// read takes the newest slot: the other one may have been torn while it was
// written, but not both. A file that is still empty was being made.
func (w *witness) read() error {
	valid, empty := 0, true
	for slot := range int64(2) {
		var b [witnessSize]byte
		n, err := w.file.ReadAt(b[:], slot*witnessSlot)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		empty = empty && b == [witnessSize]byte{}
		if n < witnessSize || binary.LittleEndian.Uint64(b[8:]) != xxhash.Sum64(b[:8]) {
			continue
		}
		valid++
		w.last = max(w.last, binary.LittleEndian.Uint64(b[:]))
	}
	if valid == 0 && !empty {
		return record.Corrupt(w.path, "no valid number in it")
	}
	return nil
}

// write returns when n is on disk.
func (w *witness) write(n uint64) error {
	var b [witnessSize]byte
	binary.LittleEndian.PutUint64(b[:], n)
	binary.LittleEndian.PutUint64(b[8:], xxhash.Sum64(b[:8]))
	if _, err := w.file.WriteAt(b[:], int64(n%2)*witnessSlot); err != nil {
		return err
	}
	if err := w.file.SyncData(); err != nil {
		return err
	}
	w.last = n
	return nil
}

func (w *witness) close() error { return w.file.Close() }
