package clerkhttp

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// source reports whether it was closed.
type source struct {
	io.Reader
	closed int
}

func (s *source) Close() error {
	s.closed++
	return nil
}

func readAll(t *testing.T, a *attempt) string {
	t.Helper()
	data, err := io.ReadAll(a)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestBodyUntouched(t *testing.T) {
	src := &source{Reader: strings.NewReader("hello")}
	b := newBody(src, false)
	first := b.now
	if err := first.Close(); err != nil || src.closed > 0 {
		t.Errorf("closed with its first attempt: %v", err)
	}
	second := b.again()
	if second == nil {
		t.Fatal("a body that was not read cannot be sent again")
	}
	if _, err := first.Read(make([]byte, 1)); !errors.Is(err, errSuperseded) {
		t.Errorf("the first attempt goes on: %v", err)
	}
	if got := readAll(t, second); got != "hello" {
		t.Errorf("read %q", got)
	}
	if b.again() != nil {
		t.Error("a body that was read and not kept is sent again")
	}
	if err := b.last(nil); err != nil || src.closed > 0 {
		t.Errorf("closed before its attempt is done: %v", err)
	}
	for _, b := range []io.Closer{second, second, first} {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
	if src.closed != 1 {
		t.Errorf("closed %d times", src.closed)
	}
}

func TestBodyKept(t *testing.T) {
	for _, n := range []int{0, 1, maxKept, maxKept + 1} {
		text := strings.Repeat("x", n)
		src := &source{Reader: iotest.HalfReader(strings.NewReader(text))}
		b := newBody(src, true)
		// The first attempt gets half of it.
		if _, err := io.CopyN(io.Discard, b.now, int64(n/2)); err != nil {
			t.Fatal(err)
		}
		second := b.again()
		if second == nil {
			t.Fatalf("%d bytes: not kept", n)
		}
		if got := readAll(t, second); got != text {
			t.Errorf("%d bytes became %d", n, len(got))
		}
		third := b.again()
		if (third != nil) != (n <= maxKept) {
			t.Errorf("%d bytes are kept: %v", n, third != nil)
		}
		if third != nil && readAll(t, third) != text {
			t.Errorf("%d bytes are others the third time", n)
		}
		if err := b.last(io.ErrUnexpectedEOF); err != io.ErrUnexpectedEOF || src.closed != 1 {
			t.Errorf("%d bytes: %v, closed %d times", n, err, src.closed)
		}
	}
}

// TestBodyBeingRead: while an attempt that has ended still reads, what it will have got
// is unknown.
func TestBodyBeingRead(t *testing.T) {
	out, in := io.Pipe()
	b := newBody(out, true)
	first := b.now
	read := make(chan error)
	go func() {
		_, err := first.Read(make([]byte, 1))
		read <- err
	}()
	for reading := false; !reading; {
		b.mu.Lock()
		reading = b.reading
		b.mu.Unlock()
	}
	if b.again() != nil {
		t.Error("sent again while it is being read")
	}
	go func() { _, _ = in.Write([]byte("x")) }()
	if err := <-read; err != nil {
		t.Error(err)
	}
	if b.again() == nil {
		t.Error("not sent again when all is kept")
	}
	_ = b.last(io.EOF)
}

func TestBodyFails(t *testing.T) {
	cause := errors.New("cut short")
	src := &source{Reader: iotest.ErrReader(cause)}
	b := newBody(src, true)
	_, _ = b.now.Read(make([]byte, 1))
	if b.again() != nil {
		t.Error("a broken body is sent again")
	}
	var be *BodyError
	if err := b.last(io.EOF); !errors.As(err, &be) || !errors.Is(err, cause) {
		t.Errorf("%v", err)
	}
}
