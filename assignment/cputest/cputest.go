// Package cputest tells tests and benchmarks how much CPU time processes have used: on a machine
// with other work that says more than the time that passed.
package cputest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Own is what this process has used so far, system calls included, to the microsecond.
func Own() time.Duration {
	u := usage()
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// OwnMost is the most memory that this process has had resident, bytes.
func OwnMost() int64 {
	u := usage()
	return u.Maxrss << 10
}

func usage() (u unix.Rusage) {
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		panic(err) // there is no such error for one's own
	}
	return u
}

// Of is what the threads of a process that runs, by its number, have used, to the nanosecond. Those
// that have ended are left out; Go's programs end none.
func Of(pid int) (sum time.Duration, err error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("process %d does not run, or the system does not tell what it has used", pid)
	}
	if err != nil {
		return 0, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return 0, err
		}
		var ran time.Duration
		if _, err := fmt.Sscan(string(text), &ran); err != nil {
			return 0, fmt.Errorf("%s: %q: %w", file, strings.TrimSpace(string(text)), err)
		}
		sum += ran
	}
	return sum, nil
}
