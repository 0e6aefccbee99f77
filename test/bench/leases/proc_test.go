package leases

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment/cputest"
	"github.com/slicer-project/slicer/test/kit/process"
)

// used is the processor time that processes have used.
func used(b *testing.B, ps ...*process.Process) (all time.Duration) {
	b.Helper()
	for _, p := range ps {
		one, err := cputest.Of(p.Pid())
		if err != nil {
			b.Fatal(err)
		}
		all += one
	}
	return all
}

// connections counts those of a process to addresses.
func connections(b *testing.B, p *process.Process, addrs []string) (n int) {
	b.Helper()
	inodes := map[string]bool{}
	fds := fmt.Sprintf("/proc/%d/fd", p.Pid())
	entries, err := os.ReadDir(fds)
	if err != nil {
		b.Fatal(err)
	}
	for _, e := range entries {
		if to, err := os.Readlink(fds + "/" + e.Name()); err == nil && strings.HasPrefix(to, "socket:[") {
			inodes[strings.Trim(to[len("socket:"):], "[]")] = true
		}
	}
	var ports []string
	for _, a := range addrs {
		_, port, _ := net.SplitHostPort(a)
		var number int
		fmt.Sscan(port, &number)
		ports = append(ports, fmt.Sprintf(":%04X", number))
	}
	text, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		b.Fatal(err)
	}
	for _, line := range strings.Split(string(text), "\n") {
		f := strings.Fields(line)
		if len(f) > 9 && f[3] == "01" && inodes[f[9]] && slices.ContainsFunc(ports, func(p string) bool { return strings.HasSuffix(f[2], p) }) {
			n++
		}
	}
	return n
}

// watchers is how many etcd has, of one that watches all by itself.
func (n *bed) watchers() (all int) {
	for _, a := range n.clients {
		resp, err := http.Get("http://" + a + "/metrics")
		if err != nil {
			n.b.Fatal(err)
		}
		for s := bufio.NewScanner(resp.Body); s.Scan(); {
			if v, ok := strings.CutPrefix(s.Text(), "etcd_debugging_mvcc_watcher_total "); ok {
				var count int
				fmt.Sscan(v, &count)
				all += count
			}
		}
		resp.Body.Close()
	}
	return all
}

// resident is the memory of a process, in MB.
func resident(b *testing.B, p *process.Process) float64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Pid()))
	if err != nil {
		b.Fatal(err)
	}
	var kb float64
	for _, line := range strings.Split(string(text), "\n") {
		if v, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			fmt.Sscan(v, &kb)
		}
	}
	return kb / 1000
}
