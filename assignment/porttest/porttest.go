// Package porttest finds ports for tests of what wants to know a port before it
// listens. What can listen on port 0 and say where does not need it.
package porttest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
)

// Ports from first up to the ones that the kernel deals out by itself, 32768 and above
// unless it is told otherwise: there any other listener on port 0, or connection, could
// take one before it is used, or while its owner is down.
const first, end = 10000, 32768

// next is where to go on looking. Test binaries that run at the same time have process
// ids close by, and begin a hundred ports apart.
var next atomic.Int64

func init() { next.Store(int64(os.Getpid()) * 101) }

// Free returns loopback addresses, host:port, on which nothing listens. It gives none
// twice before all others.
func Free(n int) ([]string, error) {
	var addrs []string
	for range end - first {
		if len(addrs) == n {
			return addrs, nil
		}
		addr := fmt.Sprintf("127.0.0.1:%d", first+next.Add(1)%(end-first))
		if l, err := net.Listen("tcp", addr); err == nil {
			l.Close()
			addrs = append(addrs, addr)
		}
	}
	return nil, errors.New("no free ports")
}
