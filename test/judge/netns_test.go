//go:build system

package judge

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

var duration = flag.Duration("judge.duration", time.Minute, "how long TestSystem brings trouble")

// namespaces has each host in a network namespace of its own, with a link to the
// bridge of etcd and one to the bridge of everybody else. A host is cut off by
// taking the far end of its link out of the bridge: it notices nothing but
// that nobody answers.
type namespaces struct {
	t      *testing.T
	prefix string // of names, distinct among runs at one time
	hosts  map[string]int
	ports  map[string]int
}

const maxHosts = 200

func newNamespaces(t *testing.T) *namespaces {
	t.Helper()
	n := &namespaces{t, fmt.Sprintf("j%x", os.Getpid()&0xffff), map[string]int{}, map[string]int{}}
	for s := range 2 {
		br := n.bridge(side(s))
		n.ip("link", "add", br, "type", "bridge")
		t.Cleanup(func() { n.ip("link", "del", br) })
		n.ip("addr", "add", n.address(side(s), 1)+"/24", "dev", br)
		n.ip("link", "set", br, "up")
	}
	return n
}

func (n *namespaces) ip(args ...string) {
	n.t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		n.t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

func (n *namespaces) bridge(s side) string { return fmt.Sprintf("%sb%d", n.prefix, s) }
func (n *namespaces) address(s side, host int) string {
	return fmt.Sprintf("10.%d.%d.%d", 203+int(s), os.Getpid()%250, host)
}
func (n *namespaces) space(host int) string { return fmt.Sprintf("%sn%d", n.prefix, host) }
func (n *namespaces) link(host int, s side) (far string) {
	return fmt.Sprintf("%sv%d-%d", n.prefix, host, s)
}

// host makes a host's namespace, when it is first spoken of.
func (n *namespaces) host(name string) int {
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
	for s := range 2 {
		far, near := n.link(id, side(s)), fmt.Sprintf("eth%d", s)
		n.ip("link", "add", far, "type", "veth", "peer", "name", near, "netns", space)
		n.ip("link", "set", far, "master", n.bridge(side(s)), "up")
		n.ip("-n", space, "addr", "add", n.address(side(s), id)+"/24", "dev", near)
		n.ip("-n", space, "link", "set", near, "up")
	}
	return id
}

func (n *namespaces) listen(host string, s side, count int) (addrs []string) {
	id := n.host(host)
	for range count {
		n.ports[host]++
		addrs = append(addrs, fmt.Sprintf("%s:%d", n.address(s, id), 7000+n.ports[host]))
	}
	return addrs
}

func (n *namespaces) command(host string, argv ...string) []string {
	return append([]string{"ip", "netns", "exec", n.space(n.host(host))}, argv...)
}

func (n *namespaces) via(_ string, _ side, addrs []string) []string { return addrs }

func (n *namespaces) cut(host string, s side, off bool) {
	far := n.link(n.host(host), s)
	if off {
		n.ip("link", "set", far, "nomaster")
	} else {
		n.ip("link", "set", far, "master", n.bridge(s))
	}
}

// large is a run of dozens of slicelets.
func large(seed uint64) plan {
	return plan{seed: seed, processes: 10, slicelets: 4, clients: 2, perSecond: 50, probes: 96, registers: 64,
		recycle: 40 * time.Second, think: 10 * time.Millisecond}
}

// systemFaults are all of them, and members of etcd that are cut off.
var systemFaults = append([]fault{
	{"cut between an etcd member and all others", 2, cutOff(etcds, leaseTime/2, 3*leaseTime, toEtcd)},
	{"cut between an assigner and etcd", 2, cutOff(assigners, leaseTime/2, 3*leaseTime, toEtcd)},
	{"cut between an assigner and distributors", 1, cutOff(assigners, leaseTime/2, 3*leaseTime, toPlane)},
}, faults...)

// TestSystem is the long run, over network namespaces.
func TestSystem(t *testing.T) {
	run(t, newNamespaces(t), large(seed(t)), *duration, 4*time.Second, systemFaults)
}
