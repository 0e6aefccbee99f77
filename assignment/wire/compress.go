package wire

import (
	"bytes"
	"compress/flate"
	"errors"
	"fmt"
	"io"
	"sync"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

const (
	// level makes of what the balancer makes about a tenth; level 6 takes three times as long
	// for a hundredth and a half less.
	level = 3
	// maxRatio is how many bytes DEFLATE makes of one at most.
	maxRatio = 1032
)

// deflaters are kept for the next time: each has some 800 KiB of tables.
var deflaters = sync.Pool{New: func() any {
	w, err := flate.NewWriter(nil, level)
	if err != nil {
		panic("wire: " + err.Error()) // the level is allowed
	}
	return w
}}

// Deflate compresses the bytes of a whole assignment to one raw DEFLATE stream (RFC 1951).
// Every build with gRPC has the decoder, and so has every language: it adds nothing to a
// clerk's binary.
func Deflate(data []byte) []byte {
	var b bytes.Buffer
	w := deflaters.Get().(*flate.Writer)
	defer deflaters.Put(w)
	w.Reset(&b)
	if _, err := w.Write(data); err != nil {
		panic("wire: " + err.Error()) // a Buffer takes everything
	}
	if err := w.Close(); err != nil {
		panic("wire: " + err.Error())
	}
	return b.Bytes()
}

// Inflate is the inverse of Deflate; the result has exactly size bytes. It takes the memory
// of the result, and some 50 KiB. Errors match ErrMalformed.
func Inflate(data []byte, size uint64) ([]byte, error) {
	bad := func(format string, args ...any) ([]byte, error) {
		return nil, malformed("compressed assignment", fmt.Errorf(format, args...))
	}
	if limit := min(uint64(len(data))*maxRatio, MaxEncodedSize); size == 0 || size > limit {
		return bad("%d bytes are to become %d, 1 to %d are allowed", len(data), size, limit)
	}
	from := bytes.NewReader(data)
	r := flate.NewReader(from)
	out := make([]byte, size)
	var more [1]byte
	switch n, err := io.ReadFull(r, out); {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return bad("%d bytes become %d, not %d", len(data), n, size)
	case err != nil:
		return bad("%w", err)
	}
	switch _, err := io.ReadFull(r, more[:]); {
	case err == nil:
		return bad("%d bytes become more than %d", len(data), size)
	case !errors.Is(err, io.EOF):
		return bad("%w", err)
	case from.Len() != 0:
		return bad("%d bytes follow its end", from.Len())
	}
	return out, nil
}

// Compressed is the frame of a whole assignment for subscribers that have said that they
// read such: the frame itself if it does not become smaller.
func (f *Frame) Compressed() *Frame {
	data := Deflate(f.Data)
	if len(data) >= len(f.Data) {
		return f
	}
	t := f.Trailer
	return &Frame{Data: data, Trailer: &slicerv1.Trailer{
		Generation: t.GetGeneration(), Base: t.GetBase(), Checksum: t.GetChecksum(), Size: uint64(len(data)), WholeSize: uint64(len(f.Data)),
	}}
}
