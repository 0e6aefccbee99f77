package clerkgrpc

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment/protokey"
	"github.com/slicer-project/slicer/assignment/subscriber"
	"github.com/slicer-project/slicer/clerk"
)

// source is behind one call's DialOptions: it has a clerk for each job that
// connections route by.
type source struct {
	cfg Config
	// err is what is wrong with the config, as RPCs tell it.
	err error
	// fields finds keys by Config.KeyFields, nil if there are none.
	fields *protokey.Finder

	// generation is that of the newest table of any job, as most sources have one: it
	// is right nearly always, and the picker sees to the rest.
	generation atomic.Pointer[generation]

	mu   sync.Mutex
	jobs map[string]*job
}

// job is a clerk and those that use it.
type job struct {
	clerk *clerk.Clerk
	tally *tally
	refs  int
	end   func() error
}

func newSource(cfg Config) *source {
	s := &source{cfg: cfg.withDefaults(), jobs: map[string]*job{}}
	if err := cfg.Validate(); err != nil {
		s.err = status.Error(codes.FailedPrecondition, "clerkgrpc: "+err.Error())
	} else if len(cfg.KeyFields) > 0 {
		s.fields, _ = protokey.New(cfg.KeyFields...)
	}
	return s
}

// acquire returns the job's clerk, made now if there is none.
func (s *source) acquire(name string) (*job, error) {
	if s.err != nil {
		return nil, s.err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if j, ok := s.jobs[name]; ok {
		j.refs++
		return j, nil
	}
	j := &job{clerk: s.cfg.Shared, tally: newTally(), refs: 1}
	unregister, err := subscriber.Register(s.cfg.Clerk.Registerer, "clerkgrpc", prometheus.Labels{"job": name}, j.tally)
	if err != nil {
		return nil, err
	}
	j.end = func() error { unregister(); return nil }
	if j.clerk == nil {
		cfg := s.cfg.Clerk
		cfg.Job = name
		if j.clerk, err = clerk.New(cfg); err != nil {
			unregister()
			return nil, err
		}
		j.end = func() error { unregister(); return j.clerk.Close() }
	}
	s.jobs[name] = j
	return j, nil
}

// release gives back what acquire returned.
func (s *source) release(name string, j *job) error {
	s.mu.Lock()
	j.refs--
	last := j.refs == 0
	if last {
		delete(s.jobs, name)
	}
	s.mu.Unlock()
	if last {
		return j.end()
	}
	return nil
}

// jobOf returns what acquire made, nil if it has been released.
func (s *source) jobOf(name string) *job {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.jobs[name]
}

// targetJob is the job of a connection: the last part of its target.
func targetJob(cc *grpc.ClientConn) string {
	target := cc.CanonicalTarget()
	return target[strings.LastIndexByte(target, '/')+1:]
}

// why says why a job has no assignment; empty if it has one, or is not known here.
func (s *source) why(name string) string {
	j := s.jobOf(name)
	if j == nil || j.clerk.Assignment() != nil {
		return ""
	}
	ended, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("time is up"))
	if err := j.clerk.Ready(ended); err != nil {
		return err.Error()
	}
	return ""
}
