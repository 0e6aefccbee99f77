// Package netns runs the processes of a test in network namespaces of their own,
// and cuts them off from one another. It needs root and iproute2, so tests that use
// it stand behind the build tag system.
package netns

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
)

// Network puts each host in a network namespace, with a link to each of its bridges. A
// host is cut off by taking the far end of a link out of its bridge: it notices nothing
// but that no answers come. It is not safe for concurrent use.
type Network struct {
	t       testing.TB
	prefix  string // of names, distinct among runs at one time
	bridges int
	hosts   map[string]int
	ports   map[string]int
}

const maxHosts = 200

// networks made so far by this process. Links of one that has been removed may be there for
// a moment still, so the next has names of its own.
var networks atomic.Int32

// New makes a network of bridges, without hosts. It is gone when the test is.
// The test itself is at home on every bridge.
func New(t testing.TB, bridges int) *Network {
	t.Helper()
	n := &Network{t, fmt.Sprintf("j%x%c", os.Getpid()&0xffff, 'a'+rune(networks.Add(1)%26)), bridges, map[string]int{}, map[string]int{}}
	for b := range bridges {
		br := n.bridge(b)
		n.ip("link", "add", br, "type", "bridge")
		t.Cleanup(func() { n.ip("link", "del", br) })
		n.ip("addr", "add", n.address(b, 1)+"/24", "dev", br)
		n.ip("link", "set", br, "up")
	}
	return n
}

func (n *Network) ip(args ...string) {
	n.t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		n.t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

func (n *Network) bridge(b int) string { return fmt.Sprintf("%sb%d", n.prefix, b) }
func (n *Network) address(b, host int) string {
	return fmt.Sprintf("10.%d.%d.%d", 203+b, os.Getpid()%250, host)
}
func (n *Network) space(host int) string { return fmt.Sprintf("%sn%d", n.prefix, host) }
func (n *Network) link(host, b int) (far string) {
	return fmt.Sprintf("%sv%d-%d", n.prefix, host, b)
}
func near(b int) string { return fmt.Sprintf("eth%d", b) }

// host makes a host's namespace, when it is first spoken of.
func (n *Network) host(name string) int {
	n.t.Helper()
	if id := n.hosts[name]; id != 0 {
		return id
	}
	id := 2 + len(n.hosts)
	if id > maxHosts {
		n.t.Fatal("too many hosts")
	}
	n.hosts[name] = id
	space := n.space(id)
	n.ip("netns", "add", space)
	n.t.Cleanup(func() { n.ip("netns", "del", space) })
	n.ip("-n", space, "link", "set", "lo", "up")
	for b := range n.bridges {
		far := n.link(id, b)
		n.ip("link", "add", far, "type", "veth", "peer", "name", near(b), "netns", space)
		n.ip("link", "set", far, "master", n.bridge(b), "up")
		n.ip("-n", space, "addr", "add", n.address(b, id)+"/24", "dev", near(b))
		n.ip("-n", space, "link", "set", near(b), "up")
	}
	return id
}

// Listen returns addresses that a host's programs can listen at, on a bridge.
func (n *Network) Listen(host string, bridge, count int) (addrs []string) {
	n.t.Helper()
	id := n.host(host)
	for range count {
		n.ports[host]++
		addrs = append(addrs, fmt.Sprintf("%s:%d", n.address(bridge, id), 7000+n.ports[host]))
	}
	return addrs
}

// Command is how argv is run at a host. The process is argv's own, so a signal
// meets it and nothing else.
func (n *Network) Command(host string, argv ...string) []string {
	n.t.Helper()
	return append([]string{"ip", "netns", "exec", n.space(n.host(host))}, argv...)
}

// Cut takes a host off a bridge, or puts it back.
func (n *Network) Cut(host string, bridge int, off bool) {
	n.t.Helper()
	far := n.link(n.host(host), bridge)
	if off {
		n.ip("link", "set", far, "nomaster")
	} else {
		n.ip("link", "set", far, "master", n.bridge(bridge))
	}
}

// noHost is a hardware address that no host has.
const noHost = "02:00:00:00:00:01"

// Lose has all that one host sends to another be lost, or arrive again. What the
// other sends arrives either way.
func (n *Network) Lose(from, to string, off bool) {
	n.t.Helper()
	space, id := n.space(n.host(from)), n.host(to)
	for b := range n.bridges {
		if off {
			n.ip("-n", space, "neigh", "replace", n.address(b, id), "lladdr", noHost, "dev", near(b), "nud", "permanent")
		} else {
			n.ip("-n", space, "neigh", "del", n.address(b, id), "dev", near(b))
		}
	}
}
