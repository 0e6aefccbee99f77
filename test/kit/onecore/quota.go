package onecore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// period is of which time a process may have its part. A part of 20 ms could not be less than a
// twentieth of a core: the kernel grants 1 ms at least.
const period = 50 * time.Millisecond

// Limit lets it have so much of a core from now on, by a cgroup with a CPU quota, and may be
// called again. It reports false, and lets it have what there is, where no such cgroup can be
// made: that takes root, and in a cgroup v2 that the root hands its CPU down.
func (p *Process) Limit(tb testing.TB, cores float64) bool {
	tb.Helper()
	quota := max(time.Duration(cores*float64(period)), time.Millisecond).Microseconds()
	dir, files := cpuGroups(quota)
	if dir == "" {
		return false
	}
	if p.group == "" {
		group := filepath.Join(dir, fmt.Sprint("slicer-bench-", p.cmd.Process.Pid))
		if err := os.Mkdir(group, 0o755); err != nil {
			return false
		}
		p.group = group
		files = append(files, [2]string{"cgroup.procs", fmt.Sprint(p.cmd.Process.Pid)})
	}
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(p.group, f[0]), []byte(f[1]), 0); err != nil {
			tb.Fatal(err)
		}
	}
	return true
}

// cpuGroups is where cgroups are made that have CPU quotas, empty where there are none, and which
// of their files say one of so many microseconds, and that it comes before what else there is to do,
// as its priority counts in its cgroup alone.
func cpuGroups(quota int64) (dir string, files [][2]string) {
	const v1, v2 = "/sys/fs/cgroup/cpu", "/sys/fs/cgroup"
	if _, err := os.Stat(filepath.Join(v1, "cpu.cfs_quota_us")); !errors.Is(err, os.ErrNotExist) {
		return v1, [][2]string{{"cpu.cfs_period_us", fmt.Sprint(period.Microseconds())}, {"cpu.cfs_quota_us", fmt.Sprint(quota)}, {"cpu.shares", "10240"}}
	}
	if on, err := os.ReadFile(filepath.Join(v2, "cgroup.subtree_control")); err == nil && slices.Contains(strings.Fields(string(on)), "cpu") {
		return v2, [][2]string{{"cpu.max", fmt.Sprint(quota, " ", period.Microseconds())}, {"cpu.weight", "1000"}}
	}
	return "", nil
}
