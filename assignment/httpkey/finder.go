package httpkey

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/slicer-project/slicer/assignment"
)

// Finder finds the key of a request: in the first of its sources that has one.
type Finder struct{ sources []Source }

// New returns a Finder of 1 to MaxSources sources, or a *assignment.FieldError
// for the first that is not allowed.
func New(sources ...Source) (*Finder, error) {
	if n := len(sources); n == 0 || n > MaxSources {
		return nil, &assignment.FieldError{Field: "key", Value: fmt.Sprintf("%d sources", n), Allowed: fmt.Sprintf("1 to %d", MaxSources)}
	}
	for _, s := range sources {
		switch {
		case s.err != nil:
			return nil, s.err
		case s.find == nil:
			return nil, &assignment.FieldError{Field: "key", Value: "the zero source", Allowed: "a source"}
		}
	}
	return &Finder{append([]Source(nil), sources...)}, nil
}

// Find returns the request's key; ok is false if no source has one. It changes
// nothing, and does not read the body.
func (f *Finder) Find(r *http.Request) (key string, ok bool) {
	for i := range f.sources {
		if key, why := f.sources[i].look(r); why == fine {
			return key, true
		}
	}
	return "", false
}

// Explain says why the request has no key, source after source; nil if it has.
func (f *Finder) Explain(r *http.Request) error {
	var parts []string
	for _, s := range f.sources {
		_, why := s.look(r)
		if why == fine {
			return nil
		}
		parts = append(parts, s.text+" is "+flaws[why])
	}
	return fmt.Errorf("the request has no key: %s", strings.Join(parts, ", "))
}

// String names the sources in order.
func (f *Finder) String() string {
	var parts []string
	for _, s := range f.sources {
		parts = append(parts, s.text)
	}
	return strings.Join(parts, ", else ")
}

// look asks one source.
func (s *Source) look(r *http.Request) (string, flaw) {
	key, why := s.find(r)
	switch {
	case key == "":
		return "", why
	case len(key) > MaxLen:
		return "", tooLong
	}
	return key, fine
}
