package run

import (
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/slicer-project/slicer/assignment/access"
	"github.com/slicer-project/slicer/assignment/certs"
)

// rereader does what SIGHUP asks of a server process: it reads again what can be
// read again while the process runs, and never ends it.
type rereader struct {
	log     *slog.Logger
	signals chan os.Signal
	quit    chan struct{}
	wg      sync.WaitGroup

	mu    sync.Mutex
	files []func()
}

func newRereader(log *slog.Logger) *rereader {
	r := &rereader{log: log, signals: make(chan os.Signal, 1), quit: make(chan struct{})}
	signal.Notify(r.signals, syscall.SIGHUP)
	r.wg.Go(func() {
		for {
			select {
			case <-r.signals:
				r.reread()
			case <-r.quit:
				return
			}
		}
	})
	return r
}

func (r *rereader) reread() {
	r.mu.Lock()
	files := r.files
	r.mu.Unlock()
	if len(files) == 0 {
		r.log.Info("SIGHUP: nothing to read again")
	}
	for _, f := range files {
		f()
	}
}

func (r *rereader) close() {
	signal.Stop(r.signals)
	close(r.quit)
	r.wg.Wait()
}

// Rereads adds something that SIGHUP makes the process read again. f logs what it
// has read, or why that is no good and what was read before stays. It is not called
// once Close has returned.
func (p *Process) Rereads(f func()) {
	p.rereader.mu.Lock()
	defer p.rereader.mu.Unlock()
	p.rereader.files = append(p.rereader.files, f)
}

// opensTLS reads the files of t, if it names any, and again when they change or SIGHUP asks
// for it.
func (p *Process) opensTLS(t *TLS) error {
	if err := t.open(p.Log, p.Registry); err != nil || t.source == nil {
		return err
	}
	for _, x := range t.source.InUse() {
		args := []any{"file", x.File, "expires", x.Expires}
		if x.Leaf != nil {
			args = append(args, "identity", string(access.Of(x.Leaf)))
		}
		p.Log.Info(x.Of+" read", args...)
	}
	p.rereads(t.source)
	return nil
}

// rereads adds TLS files.
func (p *Process) rereads(s *certs.Source) {
	p.Rereads(func() {
		if s.Reload() != nil { // which has logged why
			p.Log.Error("SIGHUP: not all files were read again")
		}
	})
}

// OpensTLS reads TLS files that are for something besides the process's own connections. It
// keeps to them, and tells of them, as to those.
func (p *Process) OpensTLS(files certs.Config) (*certs.Source, error) {
	files.Logger, files.Registerer = p.Log, p.Registry
	s, err := certs.New(files)
	if err == nil {
		p.rereads(s)
	}
	return s, err
}
