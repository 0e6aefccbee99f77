package serve

// notifiers tell those that wait for a job that it has changed. A job has one only while
// something waits.
type notifiers map[string]*notifier

type notifier struct {
	changed chan struct{}
	waiters int
}

// waitLocked returns what is closed at the next notify, and a function to call when the caller
// no longer waits for it. Both with the store's lock held.
func (b notifiers) waitLocked(job string) (changed <-chan struct{}, leave func()) {
	w := b[job]
	if w == nil {
		w = &notifier{changed: make(chan struct{})}
		b[job] = w
	}
	w.waiters++
	return w.changed, func() {
		w.waiters--
		if w.waiters == 0 && b[job] == w {
			delete(b, job)
		}
	}
}

func (b notifiers) notify(job string) {
	if w := b[job]; w != nil {
		close(w.changed)
		delete(b, job)
	}
}
