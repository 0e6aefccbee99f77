package history

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/slicer-project/slicer/assignment"
)

// ReadDir reads all logs, *.log, of a directory.
func ReadDir(dir string) (*History, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		return nil, err
	}
	h := New()
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		err = h.Read(f)
		_ = f.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return h, nil
}

// New makes an empty history.
func New() *History {
	return &History{Counts: map[string]int{}, Standstills: map[string][]Standstill{}}
}

// Read adds one process's log. A last line that was not written whole is left out.
func (h *History) Read(r io.Reader) error {
	lines := bufio.NewReader(r)
	p := &process{h: h, kept: map[string]map[string]*kept{}, looked: map[string]time.Duration{}}
	for n := 1; ; n++ {
		line, err := lines.ReadString('\n')
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if err := p.line(strings.Split(strings.TrimSuffix(line, "\n"), " ")); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	p.end()
	return nil
}

// kept is a handle that the process keeps.
type kept struct {
	fact        Fact
	began, last time.Duration // of the newest check
}

type process struct {
	h    *History
	kept map[string]map[string]*kept // by owner and key
	// looked is when an owner last had looked at its handles.
	looked map[string]time.Duration
}

func (p *process) line(words []string) error {
	f := &fields{rest: words}
	switch kind := f.text(); kind {
	case "took":
		return p.took(f)
	case "held":
		return p.held(f)
	case "lost":
		owner, key := f.name(), f.name()
		if err := f.done(); err != nil {
			return err
		}
		p.close(owner, key)
	case "used":
		return p.used(f)
	case "set":
		owner := f.name()
		began, ended := f.span()
		keys := f.list()
		if err := f.done(); err != nil {
			return err
		}
		for _, key := range keys {
			p.h.Checks++
			p.h.Facts = append(p.h.Facts, Fact{Key: key, Owner: owner, Began: began, Ended: ended})
		}
	case "told":
		t := Told{Owner: f.name(), At: time.Duration(f.number()), Arrived: f.slices(), Departed: f.slices()}
		if err := f.done(); err != nil {
			return err
		}
		p.h.Told = append(p.h.Told, t)
	case "did":
		return p.did(f)
	case "rate":
		r := Rate{f.name(), time.Duration(f.number()), int(f.number()), int(f.number()), int(f.number())}
		if err := f.done(); err != nil {
			return err
		}
		p.h.Rates = append(p.h.Rates, r)
	case "count":
		name, n := f.name(), f.number()
		if err := f.done(); err != nil {
			return err
		}
		p.h.Counts[name] += int(n)
	default:
		return fmt.Errorf("%q is no kind of line", kind)
	}
	return nil
}

func (p *process) took(f *fields) error {
	fact := Fact{Owner: f.name(), Key: f.name(), Token: assignment.Generation(f.number()), Throughout: true}
	began, ended := f.span()
	if err := f.done(); err != nil {
		return err
	}
	p.close(fact.Owner, fact.Key)
	p.h.Checks++
	p.moment(fact, began, ended)
	fact.Began = ended
	if p.kept[fact.Owner] == nil {
		p.kept[fact.Owner] = map[string]*kept{}
	}
	p.kept[fact.Owner][fact.Key] = &kept{fact: fact}
	return nil
}

func (p *process) held(f *fields) error {
	owner, n := f.name(), f.number()
	began, ended := f.span()
	if err := f.done(); err != nil {
		return err
	}
	if int(n) != len(p.kept[owner]) {
		return fmt.Errorf("%s has checked %d handles, and took %d", owner, n, len(p.kept[owner]))
	}
	p.h.Checks += int(n)
	if last, ok := p.looked[owner]; ok && ended-last >= StandstillAtLeast {
		p.h.Standstills[owner] = append(p.h.Standstills[owner], Standstill{last, ended})
	}
	p.looked[owner] = ended
	for _, k := range p.kept[owner] {
		if began < k.fact.Began || began < k.last {
			return fmt.Errorf("%s has checked %s before the check before", owner, k.fact.Key)
		}
		k.began, k.last = began, ended
	}
	return nil
}

func (p *process) used(f *fields) error {
	fact := Fact{Owner: f.name(), Key: f.name(), Token: assignment.Generation(f.number())}
	takenBegan, taken := f.span()
	n := f.number()
	checkBegan, checkEnd := f.span()
	if err := f.done(); err != nil {
		return err
	}
	p.h.Checks += 1 + int(n)
	p.moment(fact, takenBegan, taken)
	if n == 0 {
		return nil
	}
	p.moment(fact, checkBegan, checkEnd)
	p.throughout(fact, taken, checkBegan)
	return nil
}

func (p *process) did(f *fields) error {
	o := Op{Client: f.name(), Key: f.name()}
	switch kind := f.text(); kind {
	case "write":
		o.Write = true
	case "read":
	default:
		f.fail("%q is neither read nor write", kind)
	}
	o.Arg = f.value()
	if got := f.text(); got == "?" {
		o.Unknown = true
	} else {
		v, ok := strings.CutPrefix(got, "=")
		if !ok {
			f.fail("%q is no value", got)
		}
		o.Got = v
	}
	o.Call, o.Return = f.span()
	if err := f.done(); err != nil {
		return err
	}
	p.h.Ops = append(p.h.Ops, o)
	return nil
}

func (p *process) moment(f Fact, began, ended time.Duration) {
	f.Began, f.Ended, f.Throughout = began, ended, false
	p.h.Facts = append(p.h.Facts, f)
}

func (p *process) throughout(f Fact, from, to time.Duration) {
	if from < to {
		f.Began, f.Ended, f.Throughout = from, to, true
		p.h.Facts = append(p.h.Facts, f)
	}
}

// close ends what is known from a handle kept.
func (p *process) close(owner, key string) {
	if k := p.kept[owner][key]; k != nil && k.last > 0 {
		p.throughout(k.fact, k.fact.Began, k.began)
		p.moment(k.fact, k.began, k.last)
	}
	delete(p.kept[owner], key)
}

func (p *process) end() {
	for owner, keys := range p.kept {
		for key := range keys {
			p.close(owner, key)
		}
	}
}
