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
//	history: 100              # generations, and orders, kept with who, when and why
//	balance:
//	  algorithm: weighted-move  # or published
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
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/slicer-project/slicer/assignment"
)

// MaxSize bounds a file, bytes.
const MaxSize = 1 << 20

// Error says where in a file something is wrong. Err is an
// *assignment.FieldError when a field is to blame.
type Error struct {
	File string
	Line int // from 1; 0 when it is about the file as a whole
	Err  error
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %v", e.File, e.Err)
	}
	return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err)
}

// Unwrap returns what is wrong.
func (e *Error) Unwrap() error { return e.Err }

// Parse reads the job configs in a file's content, at least one, with defaults
// filled in and validated, in the order of the file. The file's name is for
// errors, which are of type *Error.
func Parse(file string, data []byte) ([]assignment.JobConfig, error) {
	if len(data) > MaxSize {
		return nil, &Error{file, 0, fmt.Errorf("%d bytes, at most %d are allowed", len(data), MaxSize)}
	}
	var configs []assignment.JobConfig
	lines := make(map[string]int) // of names
	for dec := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var doc yaml.Node
		if err := dec.Decode(&doc); err == io.EOF {
			break
		} else if err != nil {
			return nil, syntaxError(file, err)
		}
		root := doc.Content[0]
		if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
			continue // an empty document, as after a last ---
		}
		c, line, err := config(root)
		if err != nil {
			return nil, &Error{file, line, err}
		}
		if first, ok := lines[c.Name]; ok {
			return nil, &Error{file, line, &assignment.FieldError{Field: "name", Value: c.Name, Allowed: fmt.Sprintf("another name than in line %d", first)}}
		}
		lines[c.Name] = line
		configs = append(configs, c)
	}
	if len(configs) == 0 {
		return nil, &Error{file, 0, errors.New("there is no job config in it")}
	}
	return configs, nil
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?((?s:.*))$`)

// syntaxError puts the line that the YAML reader names in its place.
func syntaxError(file string, err error) *Error {
	m := yamlLine.FindStringSubmatch(err.Error())
	if m == nil {
		return &Error{file, 0, err}
	}
	line, _ := strconv.Atoi(m[1]) // 0 when there is none
	return &Error{file, line, fmt.Errorf("not YAML: %s", m[2])}
}
