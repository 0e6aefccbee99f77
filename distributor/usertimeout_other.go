//go:build !linux

package distributor

import "net"

// setUserTimeout leaves it to the pings: there is no such timeout here.
func setUserTimeout(net.Conn) {}
