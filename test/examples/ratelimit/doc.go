// Package ratelimit limits how often something may be done, over any number of frontends
// and without a store in the middle: a Client in each frontend decides in its own memory,
// and the Servers, which are tasks of a job, divide each limit among the frontends that
// are asked for it. README.md has how it works and how exact it is; package quota has the
// arithmetic, and the folders server and frontend have programs.
package ratelimit

import "github.com/slicer-project/slicer/test/examples/ratelimit/quota"

// Job is the job whose tasks are the servers, unless its clerk and slicelets name another.
// It needs max_replicas: 1, as a limit has one owner.
const Job = "limits"

// batch is how many reports or limits are sent at once at most.
const batch = 4096

// tick is how often a Client sends reports: each limit's once in an Interval or so.
const tick = quota.Interval / 5
