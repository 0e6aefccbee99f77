package distributor

import (
	"net"

	"golang.org/x/sys/unix"
)

// setUserTimeout has the kernel give up a connection that acknowledges nothing. gRPC
// does that itself, to connections that it is given as they are.
func setUserTimeout(c net.Conn) {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	if raw, err := tcp.SyscallConn(); err == nil {
		// Without it the pings find out, later.
		_ = raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(pingTimeout.Milliseconds()))
		})
	}
}
