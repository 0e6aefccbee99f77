package stores

import (
	"context"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
)

// Commit implements store.Journal.
func (l *Lazy) Commit(ctx context.Context, c store.Commit) error {
	return l.do(func(b backend) error { return b.Commit(ctx, c) })
}

// Overrides implements store.Journal.
func (l *Lazy) Overrides(ctx context.Context, job string) (store.Overrides, error) {
	return through(l, func(b backend) (store.Overrides, error) { return b.Overrides(ctx, job) })
}

// PutOverrides implements store.Journal.
func (l *Lazy) PutOverrides(ctx context.Context, job string, next store.Overrides, order store.Entry, keep int) error {
	return l.do(func(b backend) error { return b.PutOverrides(ctx, job, next, order, keep) })
}

// PutJobBy implements store.Journal.
func (l *Lazy) PutJobBy(ctx context.Context, c assignment.JobConfig, expect int64, by store.Entry) (store.Job, error) {
	return through(l, func(b backend) (store.Job, error) { return b.PutJobBy(ctx, c, expect, by) })
}

// DeleteJobBy implements store.Journal.
func (l *Lazy) DeleteJobBy(ctx context.Context, name string, by store.Entry) error {
	return l.do(func(b backend) error { return b.DeleteJobBy(ctx, name, by) })
}

// History implements store.Journal.
func (l *Lazy) History(ctx context.Context, job string, limit int) ([]store.Entry, error) {
	return through(l, func(b backend) ([]store.Entry, error) { return b.History(ctx, job, limit) })
}

// Names implements store.NameKeeper.
func (l *Lazy) Names(ctx context.Context, job string) (store.Names, error) {
	return through(l, func(b backend) (store.Names, error) { return b.Names(ctx, job) })
}

// PutNames implements store.NameKeeper.
func (l *Lazy) PutNames(ctx context.Context, job string, next store.Names) error {
	return l.do(func(b backend) error { return b.PutNames(ctx, job, next) })
}
