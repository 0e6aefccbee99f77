// Package jobfile reads and writes job configs as YAML: what an operator keeps
// under version control and gives to "slicerctl job apply -f".
//
// A file holds one job or several, each a document of its own. Only name must be
// given; what is left out has the default that assignment.JobConfig documents:
//
//	name: cache               # an RFC 1123 label
//	min_replicas: 1           # tasks of each slice
//	max_replicas: 10
//	mode: affinity            # or consistent: at most one task ever owns a key
//	load_metric: requests     # or cpu, custom
//	zone: eu-1                # prefer an assigner there
//	store: main               # which of the assigners' stores keeps the job
//	heartbeat_timeout: 5s     # reports that stop for so long mean death
//	lease_duration: 5s
//	warm_up: 30s              # until a new task has its full share of the load
//	history: 100              # generations, and orders, kept with who, when and why
//	target_utilization: 0.6   # at which the job has the tasks that it wants
//	balance:
//	  min_slices_per_task: 50
//	  max_slices_per_task: 150
//	  merge_budget: 0.01        # shares of the keyspace that a round may reassign
//	  move_budget: 0.09
//	  band_start: 1.03          # imbalance at which moving begins
//	  band_stop: 1.01           # and at which it stops
//	  smoothing: 0.25           # weight of the newest measurement
//	  interval: 5s              # between rounds
//	  cpu_threshold: 0.25       # below it a job balanced by CPU is left alone
//	damping:                  # of tasks that fail again and again
//	  half_life: 1m             # of a task's penalty, 1 a failure
//	  suppress: 3               # from which on it owns nothing
//	  reuse: 1.5                # below which it may again
//	  most: 6
//	  share: 0.25               # of the tasks that may be damped at once
//	freeze:                   # when so many vanish at once that the ears may be at fault
//	  share: 0.5                # of the tasks; 1 never freezes
//	  min_tasks: 4              # the smallest job that freezes
//	  window: 10s               # within which they fall silent
//	  for: 3m                   # unless they return
//	overload:
//	  admission: on                   # refuse what tasks have no room for; or "report", "off"
//	  default_criticality: critical   # of requests that do not say theirs
//	  retry_attempts: 3         # tasks that a request is sent to, if they have no room
//	  retry_budget: 0.1         # such attempts for each of a client's requests
//	xds:                      # stock gRPC clients
//	  missing: any              # where calls go that no owner takes; or "refuse"
//	  retries: 4                # of a call that has found no connection
//	  retry_backoff: 20ms       # after which it is sent again, about
//	limits:                   # of customers, in units of load a second over all tasks
//	  default: {rate: 5}        # of each that is not named
//	  customers:
//	    mail: {rate: 40}
//	    batch: {rate: 20, max_criticality: sheddable_plus}
//	max_tasks: 10000          # that may live at once
//	access:                   # who may do what; see package assignment/access
//	  own: ["spiffe://corp/ns/cache/task/{task}"]
//	  watch: ["spiffe://corp/**"]
//	  configure: ["spiffe://corp/ns/cache/deployer"]
//	---
//	name: search
//	mode: consistent
//
// Reading is strict: unknown fields, fields given twice, values of another type
// and values out of range are errors that name the file, the line, the field,
// the value and what is allowed. A value that is given counts as given: 0 where
// 0 is not allowed is an error and not the default. Anchors may be there but
// aliases and merges may not, so that a small file is a small config.
package jobfile

import (
	"errors"
	"fmt"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/strictyaml"
)

// MaxSize bounds a file, bytes.
const MaxSize = strictyaml.MaxSize

// Error says where in a file something is wrong. Err is an
// *assignment.FieldError when a field is to blame.
type Error = strictyaml.Error

// Parse reads the job configs in a file's content, at least one, with defaults
// filled in and validated, in the order of the file. The file's name is for
// errors, which are of type *Error.
func Parse(file string, data []byte) ([]assignment.JobConfig, error) {
	roots, err := strictyaml.Documents(file, data)
	if err != nil {
		return nil, err
	}
	var configs []assignment.JobConfig
	lines := make(map[string]int) // of names
	for _, root := range roots {
		c, line, err := config(root)
		if err != nil {
			return nil, &Error{File: file, Line: line, Err: err}
		}
		if first, ok := lines[c.Name]; ok {
			return nil, &Error{File: file, Line: line, Err: &assignment.FieldError{Field: "name", Value: c.Name, Allowed: fmt.Sprintf("another name than in line %d", first)}}
		}
		lines[c.Name] = line
		configs = append(configs, c)
	}
	if len(configs) == 0 {
		return nil, &Error{File: file, Err: errors.New("there is no job config in it")}
	}
	return configs, nil
}
