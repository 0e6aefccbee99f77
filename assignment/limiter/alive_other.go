//go:build !linux

package limiter

import "net"

// alive reports true: who has closed a connection is found out when it is read.
func alive(net.Conn) bool { return true }
