package maintenance

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"

	"github.com/slicer-project/slicer/assignment/store/internal/record"
)

// A backup is magic, a header in JSON, the records in order of key, and a trailer:
//
//	"SLICERBK" version(1)
//	length(4) header
//	length(4) keylength(2) key value     for each record; length is of what follows it
//	0(4) count(8) SHA-256 of all before(32)
//
// Numbers are big-endian.
const (
	magic         = "SLICERBK"
	backupVersion = 1
	maxHeader     = 64 << 10
	maxKey        = 1024
	maxFrame      = 2 + maxKey + record.MaxValue
	// maxRecords bounds what a backup may hold, as MaxBackup bounds its bytes.
	maxRecords = 1 << 24
	// MaxBackup is the longest backup that is read, bytes.
	MaxBackup = 8 << 30
)

// ErrBackup is matched by the errors of what is no backup, or a damaged one.
var ErrBackup = errors.New("not a good backup")

// Header says what a backup is of.
type Header struct {
	Created time.Time `json:"created"`
	Store   string    `json:"store"`
	// Revision that all records are of.
	Revision int64 `json:"revision"`
	// Longest lease time of a session that held anything, 0 if none did.
	Longest time.Duration `json:"longest_session_ns"`
	// Program that made it, with its version.
	Program string `json:"program"`
}

// Backup is a backup that was read.
type Backup struct {
	Header
	Snapshot *Snapshot
}

// WriteBackup writes a snapshot.
func WriteBackup(w io.Writer, h Header, s *Snapshot) error {
	sum := sha256.New()
	out := bufio.NewWriterSize(io.MultiWriter(w, sum), 1<<20)
	h.Revision = s.Revision
	for _, ttl := range s.Sessions {
		h.Longest = max(h.Longest, ttl)
	}
	head, err := json.Marshal(h)
	if err != nil {
		return err
	}
	if len(head) > maxHeader {
		return fmt.Errorf("backup header of %d bytes, at most %d are allowed", len(head), maxHeader)
	}
	frame := binary.BigEndian.AppendUint32(append([]byte(magic), backupVersion), uint32(len(head)))
	_, err = out.Write(append(frame, head...))
	for _, kv := range s.Records {
		n := 2 + len(kv.Key) + len(kv.Value)
		if len(kv.Key) > maxKey || len(kv.Key) == 0 || n > maxFrame {
			return fmt.Errorf("record %.80q of %d bytes: at most %d are allowed, and %d of key", kv.Key, n, maxFrame, maxKey)
		}
		frame = binary.BigEndian.AppendUint32(frame[:0], uint32(n))
		frame = append(binary.BigEndian.AppendUint16(frame, uint16(len(kv.Key))), kv.Key...)
		for _, b := range [][]byte{frame, kv.Value} {
			if err == nil {
				_, err = out.Write(b)
			}
		}
	}
	if err == nil {
		frame = binary.BigEndian.AppendUint64(make([]byte, 4), uint64(len(s.Records)))
		_, err = out.Write(frame)
	}
	if err == nil {
		err = out.Flush()
	}
	if err == nil {
		_, err = w.Write(sum.Sum(nil))
	}
	return err
}

// ReadBackup reads what WriteBackup has written, to its end. What it returns is whole:
// anything else is an error that matches ErrBackup, or the reader's.
func ReadBackup(r io.Reader) (*Backup, error) {
	in := &summed{r: bufio.NewReaderSize(io.LimitReader(r, MaxBackup), 1<<20), sum: sha256.New()}
	b, err := readBackup(in)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("%w: it ends after %d bytes", ErrBackup, in.n)
	}
	if err != nil {
		return nil, err
	}
	return b, nil
}

// summed counts and sums what is read.
type summed struct {
	r   io.Reader
	sum hash.Hash
	n   int64
}

func (s *summed) read(b []byte) error {
	n, err := io.ReadFull(s.r, b)
	s.n += int64(n)
	s.sum.Write(b[:n])
	return err
}

func (s *summed) length() (int, error) {
	var b [4]byte
	err := s.read(b[:])
	return int(binary.BigEndian.Uint32(b[:])), err
}

// bytes reads n of them, whose room grows with what is there.
func (s *summed) bytes(n int) ([]byte, error) {
	var b bytes.Buffer
	m, err := io.CopyN(io.MultiWriter(&b, s.sum), s.r, int64(n))
	s.n += m
	return b.Bytes(), err
}

func readBackup(in *summed) (*Backup, error) {
	bad := func(format string, args ...any) (*Backup, error) {
		return nil, fmt.Errorf("%w: %s", ErrBackup, fmt.Sprintf(format, args...))
	}
	var begin [len(magic) + 1]byte
	if err := in.read(begin[:]); err != nil {
		return nil, err
	}
	switch {
	case string(begin[:len(magic)]) != magic:
		return bad("it does not begin as one")
	case begin[len(magic)] != backupVersion:
		return bad("it is of version %d, this program reads version %d", begin[len(magic)], backupVersion)
	}
	n, err := in.length()
	if err != nil {
		return nil, err
	}
	if n > maxHeader {
		return bad("header of %d bytes, at most %d are allowed", n, maxHeader)
	}
	head, err := in.bytes(n)
	if err != nil {
		return nil, err
	}
	b := &Backup{Snapshot: &Snapshot{}}
	if err := json.Unmarshal(head, &b.Header); err != nil {
		return bad("header: %v", err)
	}
	if b.Longest < 0 || b.Header.Revision < 0 {
		return bad("header: longest session %s, revision %d", b.Longest, b.Header.Revision)
	}
	b.Snapshot.Revision = b.Header.Revision
	last := ""
	for {
		n, err := in.length()
		if err != nil {
			return nil, err
		}
		if n == 0 {
			break
		}
		if n < 2 || n > maxFrame {
			return bad("record %d of %d bytes, at most %d are allowed", len(b.Snapshot.Records), n, maxFrame)
		}
		frame, err := in.bytes(n)
		if err != nil {
			return nil, err
		}
		k := int(binary.BigEndian.Uint16(frame))
		if k == 0 || k > maxKey || 2+k > n {
			return bad("record %d has a key of %d bytes", len(b.Snapshot.Records), k)
		}
		key := string(frame[2 : 2+k])
		if key <= last || len(b.Snapshot.Records) == maxRecords {
			return bad("record %d, %.80q, after %.80q", len(b.Snapshot.Records), key, last)
		}
		last = key
		b.Snapshot.Records = append(b.Snapshot.Records, Record{Key: key, Value: frame[2+k:]})
	}
	var count [8]byte
	if err := in.read(count[:]); err != nil {
		return nil, err
	}
	if c := binary.BigEndian.Uint64(count[:]); c != uint64(len(b.Snapshot.Records)) {
		return bad("it holds %d records and says %d", len(b.Snapshot.Records), c)
	}
	want := in.sum.Sum(nil)
	var sum [sha256.Size]byte
	if err := in.read(sum[:]); err != nil {
		return nil, err
	}
	if !bytes.Equal(sum[:], want) {
		return bad("its checksum is not that of its content")
	}
	if n, _ := in.r.Read(make([]byte, 1)); n > 0 {
		return bad("something follows its end")
	}
	return b, nil
}
