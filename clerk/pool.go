package clerk

import (
	"fmt"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// OpenCause is why a connection to a task was opened.
type OpenCause uint8

const (
	// OpenWarm: the task is in the subset.
	OpenWarm OpenCause = iota
	// OpenOnDemand: a request was for a task without a connection, such as an
	// owner outside the subset.
	OpenOnDemand
	numOpenCauses
)

var openCauseNames = [numOpenCauses]string{"warm", "on_demand"}

func (c OpenCause) String() string {
	if c < numOpenCauses {
		return openCauseNames[c]
	}
	return fmt.Sprintf("OpenCause(%d)", uint8(c))
}

// CloseCause is why a connection to a task was closed.
type CloseCause uint8

const (
	// CloseIdle: opened on demand, and not used for a while.
	CloseIdle CloseCause = iota
	// CloseLeftSubset: the task is not in the subset any more.
	CloseLeftSubset
	// CloseTaskGone: the task is dead, or not in the assignment any more.
	CloseTaskGone
	// CloseFailed: it broke, or the other side ended it.
	CloseFailed
	// CloseShutdown: the client ends.
	CloseShutdown
	// CloseInactive: the task is in the subset, and the client has sent nothing to any task
	// for a while.
	CloseInactive
	numCloseCauses
)

var closeCauseNames = [numCloseCauses]string{"idle", "left_subset", "task_gone", "failed", "shutdown", "inactive"}

func (c CloseCause) String() string {
	if c < numCloseCauses {
		return closeCauseNames[c]
	}
	return fmt.Sprintf("CloseCause(%d)", uint8(c))
}

// ConnectionOpened counts a connection to a task. What manages the connections
// calls it once each stands, and ConnectionClosed once it does not.
func (c *Clerk) ConnectionOpened(why OpenCause) {
	if why < numOpenCauses {
		c.connections.opened[why].Add(1)
	}
}

// ConnectionClosed counts the end of a connection that ConnectionOpened counted.
func (c *Clerk) ConnectionClosed(why CloseCause) {
	if why < numCloseCauses {
		c.connections.closed[why].Add(1)
	}
}

// connections counts connections to tasks. It is a prometheus.Collector.
type connections struct {
	opened [numOpenCauses]atomic.Uint64
	closed [numCloseCauses]atomic.Uint64
}

var (
	openedDesc = prometheus.NewDesc("slicer_clerk_connections_opened_total",
		"Connections to tasks opened, by why.", []string{"cause"}, nil)
	closedDesc = prometheus.NewDesc("slicer_clerk_connections_closed_total",
		"Connections to tasks closed, by why.", []string{"cause"}, nil)
	openDesc = prometheus.NewDesc("slicer_clerk_connections",
		"Connections to tasks that are open.", nil, nil)
)

// Describe is prometheus.Collector's.
func (c *connections) Describe(ch chan<- *prometheus.Desc) {
	ch <- openedDesc
	ch <- closedDesc
	ch <- openDesc
}

// Collect is prometheus.Collector's.
func (c *connections) Collect(ch chan<- prometheus.Metric) {
	// Closed first, so that the difference is never below what is open.
	var opened, closed uint64
	for why := range numCloseCauses {
		n := c.closed[why].Load()
		closed += n
		ch <- prometheus.MustNewConstMetric(closedDesc, prometheus.CounterValue, float64(n), why.String())
	}
	for why := range numOpenCauses {
		n := c.opened[why].Load()
		opened += n
		ch <- prometheus.MustNewConstMetric(openedDesc, prometheus.CounterValue, float64(n), why.String())
	}
	ch <- prometheus.MustNewConstMetric(openDesc, prometheus.GaugeValue, float64(opened)-float64(closed))
}
