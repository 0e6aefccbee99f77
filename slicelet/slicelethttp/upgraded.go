package slicelethttp

import (
	"net"
	"sync"
	"time"
)

// closeDelay is how long after the server's close frame a WebSocket is closed that its handler has
// not closed: what the client sends meanwhile is still taken, so that it gets to see the frame.
const closeDelay = 250 * time.Millisecond

// upgraded is a connection that a handler has taken over, and that can be ended all the same.
type upgraded struct {
	net.Conn
	webSocket bool
	closed    func() // when it is closed

	mu   sync.Mutex // held while something is written
	sent frames
	over bool
	late *time.Timer
}

// Write is net.Conn's. Once the connection has been ended nothing is written any more.
func (u *upgraded) Write(p []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.over {
		return 0, ErrMoved
	}
	n, err := u.Conn.Write(p)
	u.sent.pass(p[:n])
	return n, err
}

// Close is net.Conn's.
func (u *upgraded) Close() error {
	err := u.Conn.Close()
	u.closed()
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.late != nil {
		u.late.Stop()
	}
	return err
}

// end closes the connection: a WebSocket with a close frame, if the client is at the end of a frame
// and takes more, for which it waits for closeDelay at most.
func (u *upgraded) end() {
	if !u.webSocket || !u.mu.TryLock() {
		_ = u.Conn.Close()
		return
	}
	defer u.mu.Unlock()
	u.over = true
	if !u.sent.between() {
		_ = u.Conn.Close()
		return
	}
	_ = u.Conn.SetWriteDeadline(time.Now().Add(closeDelay))
	_, _ = u.Conn.Write(goAway)
	u.late = time.AfterFunc(closeDelay, func() { _ = u.Conn.Close() })
}

// goAway is a close frame of status 1012, Service Restart: clients connect again.
var goAway = closeFrame(1012, "slicer: the key has moved")

func closeFrame(code uint16, reason string) []byte {
	return append([]byte{0x88, byte(2 + len(reason)), byte(code >> 8), byte(code)}, reason...)
}

// frames follows what a server sends on a WebSocket: where frames end. It is pure.
type frames struct {
	head   int    // how much of the end of the answer's head has been seen, up to all of it
	prefix []byte // of the frame that has begun, as far as its length is not known
	left   uint64 // bytes of the frame that are to come
}

const headEnd = "\r\n\r\n"

// between reports whether a frame may begin.
func (f *frames) between() bool { return f.head == len(headEnd) && len(f.prefix) == 0 && f.left == 0 }

// pass takes what is sent.
func (f *frames) pass(p []byte) {
	for len(p) > 0 {
		switch {
		case f.head < len(headEnd):
			p = f.passHead(p)
		case f.left > 0:
			n := min(uint64(len(p)), f.left)
			p, f.left = p[n:], f.left-n
		default:
			f.prefix = append(f.prefix, p[0])
			p = p[1:]
			f.begin()
		}
	}
}

// passHead looks for the end of the answer's head, and returns what comes after it.
func (f *frames) passHead(p []byte) []byte {
	for i, b := range p {
		switch {
		case b == headEnd[f.head]:
			f.head++
		case b == headEnd[0]:
			f.head = 1
		default:
			f.head = 0
		}
		if f.head == len(headEnd) {
			return p[i+1:]
		}
	}
	return nil
}

// begin reads the length of the frame that has begun, if all of its prefix is there.
func (f *frames) begin() {
	if len(f.prefix) < 2 {
		return
	}
	size, mask := f.prefix[1]&0x7f, uint64(f.prefix[1]>>7)*4
	extra := map[byte]int{126: 2, 127: 8}[size]
	if len(f.prefix) < 2+extra {
		return
	}
	f.left = uint64(size)
	if extra > 0 {
		f.left = 0
		for _, b := range f.prefix[2 : 2+extra] {
			f.left = f.left<<8 | uint64(b)
		}
	}
	f.left += mask
	f.prefix = f.prefix[:0]
}
