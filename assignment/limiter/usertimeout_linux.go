package limiter

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// setUserTimeout makes the kernel give up a connection that acknowledges nothing. gRPC
// does that itself, to connections that it is given as they are.
func setUserTimeout(c net.Conn, d time.Duration) {
	tcp, ok := c.(*net.TCPConn)
	if !ok || d <= 0 {
		return
	}
	if raw, err := tcp.SyscallConn(); err == nil {
		// Without it the pings find out, later.
		_ = raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()))
		})
	}
}
