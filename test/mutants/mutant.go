package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// mutant is one rule left out or turned round: in File, Old, which stands there
// once, is replaced by New.
type mutant struct {
	Name, File, Old, New string
	// Rule is what the change breaks.
	Rule string
	// Tags are the build tags that its tests need.
	Tags string
	// Equivalent says why no test can tell the mutant from the code, if none can.
	Equivalent string
}

// apply returns the mutated file.
func (m mutant) apply(root string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(root, m.File))
	if err != nil {
		return nil, err
	}
	if n := strings.Count(string(text), m.Old); n != 1 {
		return nil, fmt.Errorf("%s: %q stands %d times in %s, want once", m.Name, m.Old, n, m.File)
	}
	return []byte(strings.Replace(string(text), m.Old, m.New, 1)), nil
}

// outcome is what the tests made of a mutant.
type outcome struct {
	Mutant  string   `json:"mutant"`
	Rule    string   `json:"rule"`
	Killed  bool     `json:"killed"`
	Package string   `json:"package,omitempty"` // whose tests failed first
	Tests   []string `json:"tests,omitempty"`
	Why     string   `json:"why,omitempty"` // it survives
}

// try runs the suites that link the mutant's file until one notices it, those of its
// own package first.
func (m mutant) try(r *runner) (outcome, error) {
	o := outcome{Mutant: m.Name, Rule: m.Rule, Why: m.Equivalent}
	with := build{tags: m.Tags}
	without := with
	var err error
	if with.overlay, err = r.overlay(m); err != nil {
		return o, err
	}
	order := slices.Clone(suites)
	if i := slices.IndexFunc(order, func(s suite) bool { return s.pkg == "./"+filepath.ToSlash(filepath.Dir(m.File)) }); i > 0 {
		order = slices.Concat(order[i:i+1], order[:i], order[i+1:])
	}
	for _, s := range order {
		uses, err := r.links(without, s.pkg, filepath.Dir(m.File))
		if err != nil {
			return o, err
		}
		if !uses {
			continue
		}
		if o.Tests, err = r.notices(s, with, without); err != nil {
			return o, fmt.Errorf("%s: %w", m.Name, err)
		}
		if len(o.Tests) > 0 {
			o.Killed, o.Package, o.Why = true, s.pkg, ""
			break
		}
	}
	return o, nil
}
