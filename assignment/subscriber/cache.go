package subscriber

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cespare/xxhash/v2"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
)

// cacheEntry is what a cache file holds.
type cacheEntry struct {
	assignment *assignment.Assignment
	mode       assignment.Mode // 0 if not known
	// index is a clerk's, -1 if it has none, and client its clientHash: others that share
	// the file have indexes of their own.
	index  int
	client uint64
}

func clientHash(id string) uint64 { return xxhash.Sum64String(id) }

// A cache file is, in order and with integers little-endian:
//
//	8 bytes  cacheMagic, whose last byte is the version
//	1        mode
//	8        store id
//	1        length of the job's name, and the name
//	4        a clerk's index and 1, 0 if it has none (not in version 1)
//	8        XXH64 of its client id (not in version 1)
//	4        length of the encoded assignment (wire.EncodeAssignment; not before version 3)
//	4        length of that compressed (wire.Deflate; as it is before version 3), and that
//	8        XXH64 of everything before
const (
	cacheMagic   = "SLICERC\x03"
	cacheFixed   = len(cacheMagic) + 1 + 8 + 1 + 4 + 8 // of version 1
	cacheClient  = 4 + 8
	cacheWhole   = 4
	maxCacheSize = cacheFixed + cacheClient + cacheWhole + 255 + wire.MaxEncodedSize
)

// errCache is matched by the errors of decodeCache.
var errCache = errors.New("bad cache file")

func encodeCache(e cacheEntry) ([]byte, error) {
	data, err := wire.EncodeAssignment(e.assignment)
	if err != nil {
		return nil, err
	}
	if len(data) > wire.MaxEncodedSize {
		return nil, fmt.Errorf("assignment of %d bytes, at most %d are cached", len(data), wire.MaxEncodedSize)
	}
	job, size := e.assignment.Job(), len(data)
	data = wire.Deflate(data)
	b := make([]byte, 0, cacheFixed+cacheClient+cacheWhole+len(job)+len(data))
	b = append(b, cacheMagic...)
	b = append(b, byte(e.mode))
	b = binary.LittleEndian.AppendUint64(b, e.assignment.StoreID())
	b = append(b, byte(len(job)))
	b = append(b, job...)
	b = binary.LittleEndian.AppendUint32(b, uint32(e.index+1))
	b = binary.LittleEndian.AppendUint64(b, e.client)
	b = binary.LittleEndian.AppendUint32(b, uint32(size))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(data)))
	b = append(b, data...)
	return binary.LittleEndian.AppendUint64(b, xxhash.Sum64(b)), nil
}

// decodeCache reads the cache of a job. The bytes come from the disk: whatever
// they are, it returns an entry that is valid throughout, or an error.
func decodeCache(b []byte, job string) (*cacheEntry, error) {
	bad := func(format string, args ...any) (*cacheEntry, error) {
		return nil, fmt.Errorf("%w: %w", errCache, fmt.Errorf(format, args...))
	}
	if len(b) < cacheFixed || len(b) > maxCacheSize {
		return bad("%d bytes, %d to %d are allowed", len(b), cacheFixed, maxCacheSize)
	}
	version, newest := b[len(cacheMagic)-1], cacheMagic[len(cacheMagic)-1]
	if string(b[:len(cacheMagic)-1]) != cacheMagic[:len(cacheMagic)-1] || version < 1 || version > newest {
		return bad("it begins with %q, not with %q, the last byte of which may be less", b[:len(cacheMagic)], cacheMagic)
	}
	body, sum := b[:len(b)-8], binary.LittleEndian.Uint64(b[len(b)-8:])
	if got := xxhash.Sum64(body); got != sum {
		return bad("checksum %016x, it says %016x", got, sum)
	}
	body = body[len(cacheMagic):]
	mode, store, n := assignment.Mode(body[0]), binary.LittleEndian.Uint64(body[1:]), int(body[9])
	if mode > assignment.Consistent {
		return bad("mode %d, 0 to %d are allowed", mode, assignment.Consistent)
	}
	more := [...]int{0, 0, cacheClient, cacheClient + cacheWhole}[version]
	if body = body[10:]; len(body) < n+more+4 {
		return bad("%d bytes for a job's name of %d and an assignment", len(body), n)
	}
	name := string(body[:n])
	if name != job {
		return bad("it is of job %q, this is %q", name, job)
	}
	body = body[n:]
	e := &cacheEntry{mode: mode, index: -1}
	if version >= 2 {
		index := binary.LittleEndian.Uint32(body)
		if index > MaxClientIndex+1 {
			return bad("client index %d, at most %d is allowed", index-1, MaxClientIndex)
		}
		e.index, e.client = int(index)-1, binary.LittleEndian.Uint64(body[4:])
		body = body[cacheClient:]
	}
	whole := uint64(0)
	if version >= 3 {
		whole = uint64(binary.LittleEndian.Uint32(body))
		body = body[cacheWhole:]
	}
	if size := binary.LittleEndian.Uint32(body); uint64(size) != uint64(len(body)-4) {
		return bad("assignment of %d bytes, it says %d", len(body)-4, size)
	}
	data := body[4:]
	if version >= 3 {
		var err error
		if data, err = wire.Inflate(data, whole); err != nil {
			return bad("%w", err)
		}
	}
	a, err := wire.DecodeWholeOrPart(data)
	if err != nil {
		return bad("%w", err)
	}
	if a.Job() != job || a.StoreID() != store {
		return bad("it holds an assignment of job %q from store %016x, but says job %q, store %016x", a.Job(), a.StoreID(), job, store)
	}
	e.assignment = a
	return e, nil
}

// readCache returns nil without an error if there is no file.
func readCache(path, job string) (*cacheEntry, error) {
	// A pipe or a device would block or never end.
	switch info, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%w: not a regular file", errCache)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, int64(maxCacheSize)+1))
	if err != nil {
		return nil, err
	}
	return decodeCache(b, job)
}

// writeCache replaces the file as a whole: after a crash at any moment there is
// the old one or the new one.
func writeCache(path string, e cacheEntry) (err error) {
	b, err := encodeCache(e)
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(b)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return err
	}
	return syncDir(dir)
}

// syncDir makes a rename last.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
