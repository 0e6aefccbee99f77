package run

import (
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
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

// RereadsTLS adds the certificate and key of t, if it names any. It is called before
// Server, Client and their like. The authorities of --tls-ca are read at the start
// alone.
func (p *Process) RereadsTLS(t *TLS) {
	if t.Cert == "" {
		return
	}
	t.pair = &keyPair{cert: t.Cert, key: t.Key}
	p.Rereads(func() {
		cert, err := t.pair.load(true)
		if err != nil {
			p.Log.Error("SIGHUP: the certificate in use stays", "error", err)
			return
		}
		p.Log.Info("SIGHUP: certificate and key read again", "file", t.Cert, "subject", cert.Leaf.Subject.String(), "serial", cert.Leaf.SerialNumber.String(), "expires", cert.Leaf.NotAfter)
	})
}
