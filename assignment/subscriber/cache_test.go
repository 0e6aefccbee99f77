package subscriber

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/subscriber/subscribertest"
	"github.com/slicer-project/slicer/assignment/wire"
)

func TestCacheRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache")
	past := subscribertest.History(t, 7, 5)
	for _, a := range past {
		if err := writeCache(path, cacheEntry{assignment: a, mode: assignment.Affinity, index: -1}); err != nil {
			t.Fatal(err)
		}
		e, err := readCache(path, "job")
		if err != nil {
			t.Fatal(err)
		}
		if e.assignment.Checksum() != a.Checksum() || e.mode != assignment.Affinity {
			t.Errorf("generation %d, mode %s came back as %d, %s", a.Generation(), assignment.Affinity, e.assignment.Generation(), e.mode)
		}
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode() != 0o600 {
		t.Errorf("mode %v, want 0600", info.Mode())
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 1 {
		t.Errorf("%d files left, want only the cache (%v)", len(left), err)
	}
}

// older is a cache file as an earlier version wrote it: 1 has no client index, and neither
// compresses.
func older(t testing.TB, version byte, e cacheEntry) []byte {
	t.Helper()
	data, err := wire.EncodeAssignment(e.assignment)
	if err != nil {
		t.Fatal(err)
	}
	b := append([]byte("SLICERC"), version, byte(e.mode))
	b = binary.LittleEndian.AppendUint64(b, e.assignment.StoreID())
	b = append(append(b, byte(len(e.assignment.Job()))), e.assignment.Job()...)
	if version > 1 {
		b = binary.LittleEndian.AppendUint32(b, uint32(e.index+1))
		b = binary.LittleEndian.AppendUint64(b, e.client)
	}
	b = append(binary.LittleEndian.AppendUint32(b, uint32(len(data))), data...)
	return binary.LittleEndian.AppendUint64(b, xxhash.Sum64(b))
}

// A clerk's index comes back, and files of earlier versions are read.
func TestCacheIndex(t *testing.T) {
	a := subscribertest.History(t, 7, 3)[2]
	for _, want := range []cacheEntry{
		{a, assignment.Consistent, 0, clientHash("me")},
		{a, assignment.Affinity, MaxClientIndex, clientHash("me")},
		{a, assignment.Affinity, -1, 0},
	} {
		b, err := encodeCache(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := decodeCache(b, "job")
		if err != nil {
			t.Fatal(err)
		}
		if got.index != want.index || got.client != want.client || got.mode != want.mode {
			t.Errorf("%+v came back as %+v", want, got)
		}
		got, err = decodeCache(older(t, 1, want), "job")
		if err != nil || got.assignment.Checksum() != a.Checksum() || got.index != -1 || got.mode != want.mode {
			t.Errorf("version 1: %+v, %v", got, err)
		}
		got, err = decodeCache(older(t, 2, want), "job")
		if err != nil || got.assignment.Checksum() != a.Checksum() || got.index != want.index || got.client != want.client || got.mode != want.mode {
			t.Errorf("version 2: %+v, %v", got, err)
		}
	}
}

// The index in the cache file is the client's own.
func TestCacheIndexOfAnother(t *testing.T) {
	for client, want := range map[string]int{"me": 12, "another": -1} {
		cached := &cacheEntry{subscribertest.History(t, 7, 1)[0], assignment.Affinity, 12, clientHash(client)}
		c := newCore(&Config{Job: "job", Role: Clerk, ClientID: "me", Distributors: []string{d1}}, cached)
		if got := c.State().ClientIndex; got != want {
			t.Errorf("cached by %s: index %d, want %d", client, got, want)
		}
	}
}

func TestCacheRefused(t *testing.T) {
	good, err := encodeCache(cacheEntry{assignment: subscribertest.History(t, 7, 3)[2], mode: assignment.Affinity, index: -1})
	if err != nil {
		t.Fatal(err)
	}
	resum := func(b []byte) []byte {
		body := b[:len(b)-8]
		return binary.LittleEndian.AppendUint64(bytes.Clone(body), xxhash.Sum64(body))
	}
	edit := func(f func(b []byte)) []byte {
		b := bytes.Clone(good)
		f(b)
		return resum(b)
	}
	for _, c := range []struct {
		name string
		b    []byte
		job  string
		says string
	}{
		{"empty", nil, "job", "0 bytes"},
		{"cut short", good[:len(good)-1], "job", "checksum"},
		{"one bit", append(append([]byte(nil), good[:40]...), append([]byte{good[40] ^ 1}, good[41:]...)...), "job", "checksum"},
		{"another program's", bytes.Repeat([]byte("x"), 100), "job", "begins with"},
		{"another version", edit(func(b []byte) { b[7] = 4 }), "job", "begins with"},
		{"another job", good, "other", `job "job"`},
		{"mode", edit(func(b []byte) { b[8] = 9 }), "job", "mode"},
		{"another store", edit(func(b []byte) { b[9] ^= 1 }), "job", "store"},
		{"long name", edit(func(b []byte) { b[17] = 255 }), "job", "name"},
		{"client index", edit(func(b []byte) { b[24] = 2 }), "job", "client index"},
		{"longer than it becomes", edit(func(b []byte) { b[33]++ }), "job", "malformed compressed assignment"},
		{"shorter than it becomes", edit(func(b []byte) { b[33]-- }), "job", "malformed compressed assignment"},
		{"wrong length", edit(func(b []byte) { b[37]++ }), "job", "bytes"},
		{"not DEFLATE", edit(func(b []byte) { clear(b[41 : len(b)-8]) }), "job", "malformed compressed assignment"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, err := decodeCache(c.b, c.job)
			if e != nil || !errors.Is(err, errCache) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, %v; want an error that says %q", e, err, c.says)
			}
		})
	}
}

func TestCacheFileOdd(t *testing.T) {
	dir := t.TempDir()
	if e, err := readCache(filepath.Join(dir, "none"), "job"); e != nil || err != nil {
		t.Errorf("no file: %v, %v", e, err)
	}
	if _, err := readCache(dir, "job"); !errors.Is(err, errCache) {
		t.Errorf("a folder: %v", err)
	}
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readCache(pipe, "job"); !errors.Is(err, errCache) {
		t.Errorf("a pipe: %v", err)
	}
	if err := writeCache(filepath.Join(dir, "no", "such", "folder"), cacheEntry{assignment: subscribertest.History(t, 7, 1)[0], mode: 0, index: -1}); err == nil {
		t.Error("written into a folder that does not exist")
	}
}

// FuzzCache: whatever is on the disk, there is no panic, and what is accepted is
// of this job and survives being written again.
func FuzzCache(f *testing.F) {
	for _, a := range subscribertest.History(f, 7, 3) {
		b, err := encodeCache(cacheEntry{assignment: a, mode: assignment.Affinity, index: -1})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, false)
		f.Add(b[:len(b)/2], true)
		f.Add(older(f, 2, cacheEntry{assignment: a, mode: assignment.Affinity, index: -1}), false)
	}
	f.Fuzz(func(t *testing.T, b []byte, resum bool) {
		if resum && len(b) >= 8 { // past the checksum
			body := b[:len(b)-8]
			b = binary.LittleEndian.AppendUint64(bytes.Clone(body), xxhash.Sum64(body))
		}
		e, err := decodeCache(b, "job")
		if err != nil {
			return
		}
		again, err := encodeCache(*e)
		if err != nil {
			t.Fatal(err)
		}
		e2, err := decodeCache(again, "job")
		if err != nil || e2.assignment.Checksum() != e.assignment.Checksum() || e.assignment.Job() != "job" ||
			e2.index != e.index || e.index < -1 || e.index > MaxClientIndex {
			t.Fatalf("%v: came back as %v", err, e2)
		}
	})
}
