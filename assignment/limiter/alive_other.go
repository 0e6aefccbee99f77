//go:build !linux

package limiter

import "net"

// alive reports true: that a connection was closed is found out when it is read.
func alive(net.Conn) bool { return true }
