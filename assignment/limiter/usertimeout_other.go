//go:build !linux

package limiter

import (
	"net"
	"time"
)

// setUserTimeout leaves it to the pings: there is no such timeout here.
func setUserTimeout(net.Conn, time.Duration) {}
