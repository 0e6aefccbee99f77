package limiter

import (
	"net"

	"golang.org/x/sys/unix"
)

// The states of a TCP connection whose other end has closed it, as Linux numbers them.
const (
	tcpClose     = 7
	tcpCloseWait = 8
)

// alive reports whether the other end of a connection has not closed it, as far as the
// kernel knows. What it has sent before may still wait to be read.
func alive(c net.Conn) bool {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return true
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return false
	}
	is := true
	err = raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			is = info.State != tcpClose && info.State != tcpCloseWait
		}
	})
	return err == nil && is
}
