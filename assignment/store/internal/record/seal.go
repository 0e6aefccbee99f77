package record

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/cespare/xxhash/v2"
	"github.com/slicer-project/slicer/assignment/store"
)

const (
	format   = 1 // first byte of every value
	overhead = 9 // bytes that sealing adds
	// maxValue bounds a value, bytes: the most that etcd takes.
	maxValue = 3 << 19
)

// Seal returns the value to keep under key: the format, an XXH64 over key and
// body, the body. The key in it, without the prefix, catches values that have
// landed under another's key.
func (l Layout) Seal(key string, body []byte) []byte {
	v := make([]byte, overhead, overhead+len(body))
	v[0] = format
	binary.LittleEndian.PutUint64(v[1:], l.sum(key, body))
	return append(v, body...)
}

// Open returns the body, which shares value's memory. Its error matches
// store.ErrCorrupt and names the key.
func (l Layout) Open(key string, value []byte) ([]byte, error) {
	switch {
	case len(value) < overhead || len(value) > maxValue:
		return nil, Corrupt(key, "%d bytes, %d to %d are allowed", len(value), overhead, maxValue)
	case value[0] != format:
		return nil, Corrupt(key, "format %d, only %d is known", value[0], format)
	}
	body := value[overhead:]
	if got, want := l.sum(key, body), binary.LittleEndian.Uint64(value[1:]); got != want {
		return nil, Corrupt(key, "checksum %016x, the record says %016x", got, want)
	}
	return body, nil
}

func (l Layout) sum(key string, body []byte) uint64 {
	d := xxhash.New()
	_, _ = d.WriteString(strings.TrimPrefix(key, l.Prefix))
	_, _ = d.Write([]byte{0, format})
	_, _ = d.Write(body)
	return d.Sum64()
}

// Corrupt makes an error that matches store.ErrCorrupt and names the key.
func Corrupt(key, why string, args ...any) error {
	return fmt.Errorf("%w %s: %w", store.ErrCorrupt, key, fmt.Errorf(why, args...))
}
