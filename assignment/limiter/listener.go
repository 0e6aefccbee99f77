package limiter

import (
	"container/list"
	"errors"
	"net"
	"os"
	"runtime"
	"sync"
	"time"
)

// Listener returns a listener for a gRPC server to serve on in place of lis: its
// Accept returns connections whose handshake may begin. A TCP connection that
// acknowledges nothing for userTimeout is given up by the kernel, where that can do it;
// 0 leaves that alone. Close closes lis and all connections that Accept has not returned,
// and waits for what was started.
func (h *Handshakes) Listener(lis net.Listener, userTimeout time.Duration) net.Listener {
	l := &listener{
		Listener: lis, h: h, userTimeout: userTimeout, notify: make(chan struct{}, 1), closed: make(chan struct{}),
		waiting: make(map[*Handshake]struct{}), silent: list.New(), silentOf: make(map[string]*list.List),
	}
	l.wg.Go(l.accept)
	return l
}

type listener struct {
	net.Listener
	h           *Handshakes
	userTimeout time.Duration
	notify      chan struct{} // holds a token when Accept is to look
	closed      chan struct{}
	wg          sync.WaitGroup

	mu       sync.Mutex // taken after that of Handshakes
	ended    bool
	err      error        // of the listener below
	ready    []*Handshake // whose handshake may begin
	waiting  map[*Handshake]struct{}
	silent   *list.List            // of *silent, oldest first
	silentOf map[string]*list.List // the same by key
}

// silent is a connection of which nothing has come.
type silent struct {
	key     string
	conn    net.Conn
	all, of *list.Element
	dropped bool
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	for {
		l.mu.Lock()
		if len(l.ready) > 0 {
			s := l.ready[0]
			l.ready = l.ready[1:]
			if len(l.ready) > 0 {
				l.wake()
			}
			l.mu.Unlock()
			return &conn{Conn: s.conn, handshake: s, unread: 1}, nil
		}
		err := l.err
		l.mu.Unlock()
		if err != nil {
			return nil, err
		}
		select {
		case <-l.notify:
		case <-l.closed:
			return nil, net.ErrClosed
		}
	}
}

// wake makes Accept look.
func (l *listener) wake() {
	select {
	case l.notify <- struct{}{}:
	default:
	}
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.mu.Lock()
	was := l.ended
	l.ended = true
	if !was {
		close(l.closed)
	}
	left := l.ready
	l.ready = nil
	for s := range l.waiting {
		left = append(left, s)
	}
	clear(l.waiting)
	for e := l.silent.Front(); e != nil; e = e.Next() {
		e.Value.(*silent).conn.Close()
	}
	l.mu.Unlock()
	err := l.Listener.Close()
	for _, s := range left {
		s.conn.Close()
		s.Release()
	}
	l.wg.Wait()
	return err
}

// accept takes connections off the listener below until that ends.
func (l *listener) accept() {
	const waitMin, waitMax = 5 * time.Millisecond, time.Second
	wait := waitMin
	for {
		c, err := l.Listener.Accept()
		if err == nil {
			wait = waitMin
			l.take(c)
			continue
		}
		if temporary, ok := err.(interface{ Temporary() bool }); ok && temporary.Temporary() && l.pause(wait) {
			// As a rule there are no descriptors left.
			l.dropOldest("")
			wait = min(2*wait, waitMax)
			continue
		}
		l.mu.Lock()
		l.err = err
		l.wake()
		l.mu.Unlock()
		return
	}
}

func (l *listener) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-l.closed:
		return false
	}
}

// take waits for a connection's first byte, beside others.
func (l *listener) take(c net.Conn) {
	setUserTimeout(c, l.userTimeout)
	s := &silent{key: KeyOf(c.RemoteAddr()), conn: c}
	l.mu.Lock()
	if l.ended {
		l.mu.Unlock()
		c.Close()
		return
	}
	of := l.silentOf[s.key]
	if of == nil {
		of = list.New()
		l.silentOf[s.key] = of
	}
	s.all, s.of = l.silent.PushBack(s), of.PushBack(s)
	over := l.tooManyLocked(s.key)
	l.wg.Add(1)
	l.mu.Unlock()
	go func() {
		defer l.wg.Done()
		l.listen(s)
	}()
	if !over {
		return
	}
	// In a burst connections are taken faster than goroutines look: let these find that
	// something has come.
	runtime.Gosched()
	l.mu.Lock()
	manyOf, many := l.silentOf[s.key] != nil && l.silentOf[s.key].Len() > maxSilentEach, l.tooManyLocked(s.key)
	l.mu.Unlock()
	if manyOf {
		l.dropOldest(s.key)
	} else if many {
		l.dropOldest("")
	}
}

// tooManyLocked reports whether too many connections are silent, altogether or of a key.
func (l *listener) tooManyLocked(key string) bool {
	of := l.silentOf[key]
	return of != nil && of.Len() > maxSilentEach || l.silent.Len() > maxSilent
}

// dropOldest drops the silent connection that is the oldest of a key, or of all with "".
func (l *listener) dropOldest(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	from := l.silent
	if key != "" {
		from = l.silentOf[key]
	}
	if from == nil || from.Front() == nil {
		return
	}
	s := from.Front().Value.(*silent)
	l.speaksLocked(s)
	s.dropped = true
	l.h.drop(s.conn, DroppedSilent)
}

// speaksLocked takes a connection off those that are silent.
func (l *listener) speaksLocked(s *silent) {
	if s.all == nil {
		return
	}
	l.silent.Remove(s.all)
	of := l.silentOf[s.key]
	of.Remove(s.of)
	if of.Len() == 0 {
		delete(l.silentOf, s.key)
	}
	s.all, s.of = nil, nil
}

// listen waits for the first byte and then lets the connection be set up.
func (l *listener) listen(s *silent) {
	h := &Handshake{Addr: s.conn.RemoteAddr(), of: l.h, id: l.h.number(), key: s.key, listener: l, conn: s.conn}
	err := s.conn.SetReadDeadline(time.Now().Add(silentFor))
	if err == nil {
		_, err = s.conn.Read(h.first[:])
	}
	if err == nil {
		err = s.conn.SetReadDeadline(time.Time{})
	}
	l.mu.Lock()
	l.speaksLocked(s)
	dropped := s.dropped || l.ended
	if err == nil && !dropped {
		l.waiting[h] = struct{}{}
	}
	l.mu.Unlock()
	switch {
	case dropped:
		s.conn.Close()
	case errors.Is(err, os.ErrDeadlineExceeded):
		l.h.drop(s.conn, DroppedSilent)
	case err != nil:
		s.conn.Close()
	default:
		l.h.begin(h)
	}
}

// deliver hands a connection to Accept.
func (l *listener) deliver(s *Handshake) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, waits := l.waiting[s]; !waits {
		return // closed
	}
	delete(l.waiting, s)
	l.ready = append(l.ready, s)
	l.wake()
}

// forget is for one that will not be delivered.
func (l *listener) forget(s *Handshake) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.waiting, s)
}

// conn is a connection whose first byte has been read.
type conn struct {
	net.Conn
	handshake *Handshake
	unread    int
}

// Read implements net.Conn. The server's one reading goroutine calls it.
func (c *conn) Read(b []byte) (int, error) {
	if c.unread > 0 && len(b) > 0 {
		c.unread = 0
		b[0] = c.handshake.first[0]
		return 1, nil
	}
	return c.Conn.Read(b)
}

// RemoteAddr is where the handlers of its streams find the handshake.
func (c *conn) RemoteAddr() net.Addr {
	if c.handshake.of.cfg.UntilSetUp {
		return c.handshake.Addr
	}
	return c.handshake
}

// SetDeadline is called without one when gRPC has set the connection up.
func (c *conn) SetDeadline(t time.Time) error {
	if t.IsZero() && c.handshake.of.cfg.UntilSetUp {
		c.handshake.Release()
	}
	return c.Conn.SetDeadline(t)
}

func (c *conn) Close() error {
	c.handshake.Release()
	return c.Conn.Close()
}
