//go:build system

package judge

import (
	"flag"
	"testing"
	"time"

	"github.com/slicer-project/slicer/test/kit/netns"
)

var duration = flag.Duration("judge.duration", time.Minute, "how long TestSystem brings trouble")

// namespaces puts each host in a network namespace of its own, with a link to the bridge
// of etcd and one to the bridge of all others.
type namespaces struct{ *netns.Network }

func newNamespaces(t *testing.T) namespaces { return namespaces{netns.New(t, 2)} }

func (n namespaces) listen(host string, s side, count int) []string {
	return n.Listen(host, int(s), count)
}
func (n namespaces) command(host string, argv ...string) []string  { return n.Command(host, argv...) }
func (n namespaces) via(_ string, _ side, addrs []string) []string { return addrs }
func (n namespaces) cut(host string, s side, off bool)             { n.Cut(host, int(s), off) }

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

// frontFaults are of fronts above all, which the assigners are then.
var frontFaults = []fault{
	{"kill of slicelets", 2, kill(owners, 3*time.Second)},
	{"stop of slicelets for longer than the lease", 4, stop(owners, leaseTime+500*time.Millisecond, 3*leaseTime)},
	{"stop of slicelets for a moment", 2, stop(owners, 100*time.Millisecond, leaseTime)},
	{"cut between slicelets and fronts", 4, cut(leaseTime/2, 3*leaseTime, toPlane)},
	{"kill of a front", 4, kill(assigners, 4*time.Second)},
	{"stop of a front for longer than the lease", 4, stop(assigners, leaseTime, 4*leaseTime)},
	{"stop of a front for a moment", 3, stop(assigners, 100*time.Millisecond, leaseTime)},
	{"cut between a front and etcd", 4, cutOff(assigners, leaseTime/2, 3*leaseTime, toEtcd)},
	{"cut between a front and all others", 2, cutOff(assigners, leaseTime/2, 3*leaseTime, toPlane)},
	{"kill of an etcd member", 3, kill(etcds, 3*time.Second)},
	{"stop of an etcd member", 2, stop(etcds, 500*time.Millisecond, 2*leaseTime)},
	{"cut between an etcd member and all others", 2, cutOff(etcds, leaseTime/2, 3*leaseTime, toEtcd)},
	{"kill of a distributor", 1, kill(distributors, 2*time.Second)},
}

// TestSystemFronts is the same with leases by way of the assigners.
func TestSystemFronts(t *testing.T) {
	p := large(seed(t))
	p.fronts = true
	run(t, newNamespaces(t), p, *duration, 4*time.Second, frontFaults)
}
