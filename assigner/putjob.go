package assigner

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/access/enforce"
	"github.com/slicer-project/slicer/assignment/jobfile"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// adminWithin bounds an operator's call that has no deadline of its own.
const adminWithin = 30 * time.Second

// PutJob implements AdminService.
func (v adminService) PutJob(ctx context.Context, r *slicerv1.PutJobRequest) (_ *slicerv1.PutJobResponse, err error) {
	ctx, span := orderSpan(ctx, v.a.cfg.Tracer, r.GetConfig().GetName(), "put job")
	defer func() { span.End(err) }()
	ctx, done, err := v.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	cfg, expect, err := wantedJob(r)
	if err != nil {
		return nil, statusOf(err)
	}
	c := v.caller(ctx)
	stamp, err := v.stamp(c, r.GetWho(), r.GetWhy(), r.GetPeer())
	if err != nil {
		return nil, statusOf(err)
	}
	// With whatever version the config is written onto the one that was looked at:
	// what was checked is what is replaced.
	for {
		resp, action, err := v.put(ctx, c, cfg, expect, stamp)
		if errors.Is(err, store.ErrConflict) && expect == store.AnyVersion && ctx.Err() == nil {
			continue
		}
		if err != nil {
			return nil, statusOf(err)
		}
		v.audit(cfg.Name, action, stamp).Info("job config stored", "version", resp.Job.Version, "created", resp.Created)
		v.a.changed(cfg.Name)
		return resp, nil
	}
}

// CheckJob implements AdminService.
func (v adminService) CheckJob(ctx context.Context, r *slicerv1.CheckJobRequest) (*slicerv1.CheckJobResponse, error) {
	ctx, done, err := v.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	cfg, expect, err := wantedJob(r)
	if err != nil {
		return nil, statusOf(err)
	}
	c := v.caller(ctx)
	w, err := v.writable(ctx, c, cfg, expect)
	if err == nil && w.creates() {
		err = jobBounds{v.a}.mayCreate(ctx, c)
	}
	if err != nil {
		return nil, statusOf(err)
	}
	if _, write := w.home.health.outcomes(); write.err != nil {
		return nil, status.Errorf(codes.Unavailable, "store %s cannot be written, last %s: %v", w.home.label(), ago(write.good), write.err)
	}
	return &slicerv1.CheckJobResponse{Creates: w.creates()}, nil
}

// wantedJob reads what PutJob and CheckJob are asked.
func wantedJob(r interface {
	GetConfig() *slicerv1.JobConfig
	GetExpectedVersion() int64
}) (cfg assignment.JobConfig, expect int64, err error) {
	if cfg, err = wire.JobFromProto(r.GetConfig()); err != nil {
		return cfg, 0, err
	}
	if expect = r.GetExpectedVersion(); expect < store.NoVersion {
		err = &assignment.FieldError{Field: "expected_version", Value: expect, Allowed: "-1 (there is none yet), 0 (whatever is stored) or a version"}
	}
	return cfg, expect, err
}

// put writes a config onto the one that is stored now, if the caller may. It returns in
// words, for the history, what that is.
func (v adminService) put(ctx context.Context, c enforce.Caller, cfg assignment.JobConfig, expect int64, stamp store.Stamp) (resp *slicerv1.PutJobResponse, action string, err error) {
	w, err := v.writable(ctx, c, cfg, expect)
	if err != nil {
		return nil, "", err
	}
	if w.creates() {
		done, err := jobBounds{v.a}.room(ctx, c)
		if err != nil {
			return nil, "", err
		}
		defer done()
	}
	j, err := w.home.backend.PutJobBy(ctx, cfg, w.onto, v.entry(cfg.Name, w.action, stamp))
	if err != nil {
		return nil, "", err
	}
	return &slicerv1.PutJobResponse{Job: jobToProto(j), Created: w.creates()}, w.action, nil
}

// jobWrite is a config on its way into a store.
type jobWrite struct {
	home   *storeWatch
	onto   int64  // the version that is replaced, store.NoVersion for none
	action string // in words, for the history
}

func (w *jobWrite) creates() bool { return w.onto == store.NoVersion }

// writable reports why a config cannot be written onto the one that is stored now, but for
// the bounds of new jobs.
func (v adminService) writable(ctx context.Context, c enforce.Caller, cfg assignment.JobConfig, expect int64) (w jobWrite, err error) {
	cur, at, err := v.find(ctx, c, assignment.Configure, cfg.Name)
	creates := errors.Is(err, store.ErrNotFound)
	if err != nil && !creates {
		return w, err
	}
	if w.home, err = v.a.storeFor(cfg.Store); err != nil {
		return w, err
	}
	if cfg.Mode == assignment.Consistent {
		if err := w.home.leases.refusal(ctx); err != nil {
			return w, status.Errorf(codes.FailedPrecondition, "job %s: %v", cfg.Name, err)
		}
	}
	w.onto = store.NoVersion
	if creates {
		if expect > 0 {
			return w, status.Errorf(codes.Aborted, "job %s: version %d was expected, but there is no such job", cfg.Name, expect)
		}
		w.action = settings("create job", jobfile.Changes(assignment.JobConfig{Name: cfg.Name}.WithDefaults(), cfg))
	} else {
		if err := v.changeable(ctx, w.home, at, cur, cfg, expect); err != nil {
			return w, err
		}
		w.onto, w.action = cur.Version, settings("change job", jobfile.Changes(cur.Config, cfg))
	}
	if creates || cur.Config.Access != cfg.Access {
		err = v.keepsConfigure(c, cfg)
	}
	return w, err
}

// changeable reports why a stored config cannot be replaced by another one now.
func (v adminService) changeable(ctx context.Context, home, at *storeWatch, cur store.Job, cfg assignment.JobConfig, expect int64) error {
	switch {
	case expect == store.NoVersion:
		return status.Errorf(codes.Aborted, "job %s is there already, in version %d", cfg.Name, cur.Version)
	case expect != store.AnyVersion && expect != cur.Version:
		return status.Errorf(codes.Aborted, "job %s: version %d was expected, %d is stored", cfg.Name, expect, cur.Version)
	case at != home:
		return status.Errorf(codes.FailedPrecondition, "job %s is kept in store %s and cannot move to %s: delete it first", cfg.Name, at.label(), home.label())
	case cur.Config.Mode == cfg.Mode:
		return nil
	}
	live, err := v.a.liveTasks(ctx, cfg.Name, home)
	if err == nil && live > 0 {
		err = status.Errorf(codes.FailedPrecondition, "job %s: mode cannot change from %s to %s while tasks live (%d): stop them first", cfg.Name, cur.Config.Mode, cfg.Mode, live)
	}
	return err
}

// settings says in words, for the history, which settings are others now: as many as
// there is room for.
func settings(what string, changes []jobfile.Change) string {
	const more = ", and %d more"
	for i, c := range changes {
		lead := ", "
		if i == 0 {
			lead = ": "
		}
		next := what + lead + c.String()
		if len(next)+len(more) > maxAction {
			return what + fmt.Sprintf(more, len(changes)-i)
		}
		what = next
	}
	return what
}

// storeFor is the store that a job config names; empty is the first.
func (a *Assigner) storeFor(name string) (*storeWatch, error) {
	if name == "" {
		return a.stores[0], nil
	}
	names := []string{"empty"}
	for _, s := range a.stores {
		if s.name == name {
			return s, nil
		}
		if s.name != "" {
			names = append(names, fmt.Sprintf("%q", s.name))
		}
	}
	if len(names) == 1 {
		names[0] = "empty: the assigners' one store has no name"
	}
	return nil, &assignment.FieldError{Field: "store", Value: name, Allowed: strings.Join(names, " or ")}
}
