package httpkey

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"github.com/slicer-project/slicer/assignment"
)

// MaxPattern bounds a pattern, bytes.
const MaxPattern = 1024

// Pattern matches paths. Its syntax is that of the path in a pattern of
// http.ServeMux: /users/{id} has one segment for {id}, /static/ is that path and
// all below, {rest...} at the end is any number of segments, and {$} at the end
// of /a/{$} leaves out what is below.
//
// Unlike ServeMux it does not ask for paths to be clean, nor redirects: a path is
// taken as it is, /static does not match /static/, and {id} stands for at least
// one character.
type Pattern struct {
	text     string
	segments []segment
	// below says that any number of segments may follow, and name what they are
	// called, if anything.
	below bool
	name  string
	end   bool // a slash ends it, and nothing follows
}

type segment struct {
	text string // literally, or the wildcard's name
	wild bool
}

// ParsePattern reads a pattern. The error is a *assignment.FieldError of "path".
func ParsePattern(text string) (*Pattern, error) {
	refuse := func(allowed string) (*Pattern, error) {
		return nil, &assignment.FieldError{Field: "path", Value: text, Allowed: allowed}
	}
	rest, ok := strings.CutPrefix(text, "/")
	if !ok || len(text) > MaxPattern {
		return refuse(fmt.Sprintf("a path that begins with a slash, such as /users/{id}/, of at most %d bytes", MaxPattern))
	}
	p := &Pattern{text: text}
	for more := true; more; {
		var seg string
		seg, rest, more = strings.Cut(rest, "/")
		switch name, wild := wildcardName(seg); {
		case seg == "" && !more:
			p.below = true
		case wild && name == "$" && !more:
			p.end = true
		case wild && strings.HasSuffix(name, "...") && !more && isName(strings.TrimSuffix(name, "...")):
			p.below, p.name = true, strings.TrimSuffix(name, "...")
		case wild && isName(name):
			p.segments = append(p.segments, segment{name, true})
		case seg == "" || seg == "." || seg == "..":
			return refuse("a path without empty segments, . and ..")
		case strings.ContainsAny(seg, "{}"):
			return refuse("wildcards that fill a segment, as in /users/{id}/, with {rest...} and {$} only at the end")
		default:
			literal, err := url.PathUnescape(seg)
			if err != nil {
				return refuse("percent signs before two hexadecimal digits")
			}
			p.segments = append(p.segments, segment{literal, false})
		}
	}
	names := p.Wildcards()
	slices.Sort(names)
	if len(slices.Compact(names)) < len(p.Wildcards()) {
		return refuse("wildcards with different names")
	}
	return p, nil
}

func wildcardName(seg string) (string, bool) {
	if len(seg) > 2 && seg[0] == '{' && seg[len(seg)-1] == '}' {
		return seg[1 : len(seg)-1], true
	}
	return "", false
}

// isName reports whether it is a Go identifier.
func isName(s string) bool {
	for i, r := range s {
		if r != '_' && !unicode.IsLetter(r) && (i == 0 || !unicode.IsDigit(r)) {
			return false
		}
	}
	return s != ""
}

// String is the pattern as it was written.
func (p *Pattern) String() string { return p.text }

// Wildcards are the names of the wildcards, in order.
func (p *Pattern) Wildcards() (names []string) {
	for _, s := range p.segments {
		if s.wild {
			names = append(names, s.text)
		}
	}
	if p.name != "" {
		names = append(names, p.name)
	}
	return names
}

// wildcard is the number of the segment that a wildcard stands for, -1 if there
// is none of that name.
func (p *Pattern) wildcard(name string) int {
	if name != "" && p.name == name {
		return len(p.segments)
	}
	return slices.Index(p.segments, segment{name, true})
}

// Match reports whether the pattern fits the URL's path.
func (p *Pattern) Match(u *url.URL) bool {
	_, ok := p.match(u, -1)
	return ok
}

// match also returns what stands for the segment wanted, if any is.
func (p *Pattern) match(u *url.URL, wanted int) (value string, ok bool) {
	w := walk(u)
	for i, s := range p.segments {
		seg, ok := w.next()
		if !ok || s.wild && seg == "" || !s.wild && seg != s.text {
			return "", false
		}
		if i == wanted {
			value = seg
		}
	}
	if p.below && wanted == len(p.segments) {
		value = w.remainder()
	}
	switch {
	case p.below:
		return value, w.more
	case p.end:
		return value, w.more && w.rest == ""
	}
	return value, !w.more
}

// walker goes through the segments of a path.
type walker struct {
	rest    string
	more    bool // a slash was read, and rest follows it
	escaped bool
}

func walk(u *url.URL) walker {
	// Without a raw path the path's escaping was the ordinary one: no segment had
	// an escaped slash in it.
	w := walker{rest: u.Path}
	if w.rest == "" {
		w.rest = "/" // as it is sent
	}
	if u.RawPath != "" {
		w.rest, w.escaped = u.EscapedPath(), true
	}
	w.rest, w.more = strings.CutPrefix(w.rest, "/")
	return w
}

// next returns the next segment, unescaped. After a slash at the path's end one
// comes that is empty.
func (w *walker) next() (seg string, ok bool) {
	if !w.more {
		return "", false
	}
	seg, w.rest, w.more = strings.Cut(w.rest, "/")
	return w.unescape(seg), true
}

func (w *walker) remainder() string { return w.unescape(w.rest) }

func (w *walker) unescape(s string) string {
	if w.escaped {
		// EscapedPath is well-formed.
		if plain, err := url.PathUnescape(s); err == nil {
			return plain
		}
	}
	return s
}
