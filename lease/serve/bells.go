package serve

// bells wake those who wait for a job to change. A job has a bell only while
// somebody waits.
type bells map[string]*bell

type bell struct {
	rung    chan struct{}
	waiters int
}

// wait returns what is closed at the next ring, and a function to call when
// nobody waits for it any more. Both with the store's lock held.
func (b bells) wait(job string) (rung <-chan struct{}, leave func()) {
	w := b[job]
	if w == nil {
		w = &bell{rung: make(chan struct{})}
		b[job] = w
	}
	w.waiters++
	return w.rung, func() {
		w.waiters--
		if w.waiters == 0 && b[job] == w {
			delete(b, job)
		}
	}
}

func (b bells) ring(job string) {
	if w := b[job]; w != nil {
		close(w.rung)
		delete(b, job)
	}
}
