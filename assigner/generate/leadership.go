package generate

import (
	"slices"
	"time"

	"github.com/slicer-project/slicer/assigner/membership"
)

// leadership is which assigner decides, and what the Distributors say that are attached
// to this one.
type leadership struct {
	*env
	preferred string
	mine      bool // loaded since this assigner became preferred
	recalled  bool // so are the penalties of tasks

	sessions   []*distributor
	lost       []lost   // Distributors whose streams have ended lately
	stragglers []string // room for those of Convergence
}

// distributor is what is known of one attached Distributor about this job.
type distributor struct {
	session  membership.Session
	name     string
	wants    bool
	reported []Held
	acks     *Acks
	heard    time.Duration // when it last said something, as far as known
}

// isPreferred reports whether this assigner takes the job's decisions.
func (l *leadership) isPreferred() bool { return l.preferred == l.cfg.ID && l.cfg.ID != "" }

func (l *leadership) distributor(s membership.Session) *distributor {
	for _, d := range l.sessions {
		if d.session == s {
			return d
		}
	}
	return nil
}

// lose remembers a Distributor whose stream has ended, unless it has another.
func (l *leadership) lose(s membership.Session) {
	d := l.distributor(s)
	if d == nil {
		return
	}
	l.sessions = slices.DeleteFunc(l.sessions, func(o *distributor) bool { return o == d })
	l.lost = slices.DeleteFunc(l.lost, func(was lost) bool { return l.now.Mono-was.at >= lostFor })
	again := slices.ContainsFunc(l.sessions, func(o *distributor) bool { return o.name == d.name && o.acks != nil })
	if d.acks != nil && !d.acks.Empty && !again {
		l.found(d.name)
		l.lost = append(l.lost, lost{d.name, l.now.Mono, *d.acks})
	}
}

// found forgets that a Distributor was lost: it says itself how far its subscribers are.
func (l *leadership) found(name string) {
	l.lost = slices.DeleteFunc(l.lost, func(was lost) bool { return was.name == name })
}
