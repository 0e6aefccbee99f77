package ctl

import (
	"fmt"
	"time"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// leaseView is how the leases of a job in consistent mode stand.
type leaseView struct {
	Head          int64  `json:"head"`
	Guard         int64  `json:"guard"`
	GuardOpen     bool   `json:"guard_open"`
	GuardReaders  uint32 `json:"guard_readers"`
	GuardOnly     uint32 `json:"guard_only"`
	BridgeFrom    int64  `json:"bridge_from"`
	BridgeTo      int64  `json:"bridge_to"`
	BridgeOpen    bool   `json:"bridge_open"`
	BridgeReaders uint32 `json:"bridge_readers"`
	BridgeOnly    uint32 `json:"bridge_only"`
	Step          string `json:"step,omitempty"`
	StepMS        int64  `json:"step_ms"`
	Leading       bool   `json:"leading"`
	Error         string `json:"error,omitempty"`
}

func newLeases(c *slicerv1.Consistency) *leaseView {
	if c == nil {
		return nil
	}
	return &leaseView{
		Head: c.Head, Guard: c.Guard, GuardOpen: c.GuardOpen, GuardReaders: c.GuardReaders, GuardOnly: c.GuardOnly,
		BridgeFrom: c.BridgeFrom, BridgeTo: c.BridgeTo, BridgeOpen: c.BridgeOpen, BridgeReaders: c.BridgeReaders, BridgeOnly: c.BridgeOnly,
		Step: c.Step, StepMS: c.StepMs, Leading: c.Leading, Error: c.Error,
	}
}

// describe says it on one line.
func (l *leaseView) describe() string {
	switch {
	case l.Error != "":
		return "leases not known: " + l.Error
	case l.Guard == 0:
		return "leases: no generation is in force yet"
	}
	readers := func(n, only uint32) string {
		s := plural(int(n), "reader")
		if only > 0 {
			s += fmt.Sprintf(", %d of them not across yet", only)
		}
		return s
	}
	s := fmt.Sprintf("leases: guard at generation %d, %s, %s", l.Guard, state(l.GuardOpen), readers(l.GuardReaders, l.GuardOnly))
	if l.BridgeTo != 0 {
		s += fmt.Sprintf("; bridge to %d, %s, %s", l.BridgeTo, state(l.BridgeOpen), readers(l.BridgeReaders, l.BridgeOnly))
	}
	if l.Step != "" {
		s += "; next step: " + l.Step
		if l.StepMS >= 0 {
			s += ", for " + age(time.Duration(l.StepMS)*time.Millisecond)
		}
	}
	return s
}

func state(open bool) string {
	if open {
		return "open"
	}
	return "recalled"
}
