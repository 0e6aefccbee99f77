package assignment

import (
	"fmt"
	"iter"
	"slices"
	"strings"
)

// Verb is what an identity may do with a job. Package assignment/access decides who may.
type Verb uint8

const (
	// Own is to be a task of the job: to report, to drain oneself, to hold its leases.
	// What may own may watch.
	Own Verb = iota + 1
	// Watch is to get the job's assignments.
	Watch
	// Read is to inspect the job: its tasks, load, history, decisions and limits.
	Read
	// Order is to drain, pin, exclude, freeze and roll back. What may order may read.
	Order
	// Configure is to create, change and delete the job, its rights included. What may
	// configure may read.
	Configure
)

// Verbs are all of them, in the order in which they are printed.
var Verbs = []Verb{Own, Watch, Read, Order, Configure}

const verbs = "own, watch, read, order or configure"

func (v Verb) String() string {
	switch v {
	case Own:
		return "own"
	case Watch:
		return "watch"
	case Read:
		return "read"
	case Order:
		return "order"
	case Configure:
		return "configure"
	}
	return fmt.Sprintf("Verb(%d)", uint8(v))
}

// ParseVerb reads what String prints.
func ParseVerb(s string) (Verb, error) {
	for _, v := range Verbs {
		if v.String() == s {
			return v, nil
		}
	}
	return 0, &FieldError{"verb", s, verbs}
}

// Implies reports whether the right to v includes that to w.
func (v Verb) Implies(w Verb) bool {
	return v == w || v == Own && w == Watch || (v == Order || v == Configure) && w == Read
}

const (
	// MaxPatterns is how many patterns of identities there may be for one verb.
	MaxPatterns = 100
	// MaxIdentityLen bounds an identity and a pattern of them, bytes.
	MaxIdentityLen = 512

	// taskPlace and jobPlace stand in a pattern for the names of the task and the job that
	// are asked about.
	taskPlace, jobPlace = "{task}", "{job}"

	patternForm = "1 to 512 printable ASCII characters without space and comma, such as spiffe://corp/ns/cache/task/{task}; " +
		"between slashes * stands for any one segment and, at the end, ** for all that follows"
)

// Access says for each verb which identities have the right. It does not change, and is equal
// (==) when it says the same. The zero value says nothing: then it is for the policy of the
// process to say.
type Access struct {
	// text has a line for each pattern: the verb, a space and the pattern, in the order of
	// Verbs and then as they were given.
	text string
}

// AccessOf gives each verb to the identities that match one of its patterns. A verb without
// any is for administrators alone. A pattern is an identity in which a segment
// between slashes may be *, for any one segment, the last ** for one segment or more, and
// {task} and {job} stand for the names of task and job that are asked about; {task} is for
// Own alone. ** by itself matches all. The error is a *FieldError whose field is called as in
// a job file.
func AccessOf(given map[Verb][]string) (Access, error) {
	var b strings.Builder
	for _, v := range Verbs {
		if err := CheckPatterns("access."+v.String(), given[v], v == Own, true); err != nil {
			return Access{}, err
		}
		for _, p := range given[v] {
			fmt.Fprintf(&b, "%s %s\n", v, p)
		}
	}
	if b.Len() == 0 {
		return Access{}, &FieldError{"access", "{}", "patterns of identities for one verb or more of " + verbs + "; leave access out to have what the policy says"}
	}
	return Access{b.String()}, nil
}

// CheckPatterns returns a *FieldError, with the field's name, for the first pattern that is
// not allowed. {task} and {job} may stand in them where there are such names.
func CheckPatterns(field string, patterns []string, task, job bool) error {
	if len(patterns) > MaxPatterns {
		return &FieldError{field, len(patterns), fmt.Sprintf("at most %d patterns", MaxPatterns)}
	}
	for i, p := range patterns {
		allowed := ""
		switch {
		case !ValidPattern(p):
			allowed = patternForm
		case !task && strings.Contains(p, taskPlace):
			allowed = "{task} in patterns of own alone: only there a task is asked about"
		case !job && strings.Contains(p, jobPlace):
			allowed = "{job} only where a job is asked about"
		case slices.Contains(patterns[:i], p):
			allowed = "each pattern once"
		}
		if allowed != "" {
			return &FieldError{field, Clip(p, 80), allowed}
		}
	}
	return nil
}

// ValidPattern reports whether p is a pattern of identities.
func ValidPattern(p string) bool {
	if p == "" || len(p) > MaxIdentityLen {
		return false
	}
	for i := range len(p) {
		if c := p[i]; c <= ' ' || c >= 0x7f || c == ',' {
			return false
		}
	}
	plain := strings.ReplaceAll(strings.ReplaceAll(p, taskPlace, "t"), jobPlace, "j")
	if strings.ContainsAny(plain, "{}") || !strings.Contains(p, "/") && plain != strings.ToLower(plain) {
		return false // names of hosts are in lower case
	}
	segments := strings.Split(p, "/")
	for i, s := range segments {
		// The second is empty in spiffe://.
		if s == "" && (i != 1 || len(segments) < 3) {
			return false
		}
		if strings.Contains(s, "*") && s != "*" && (s != "**" || i != len(segments)-1) {
			return false
		}
	}
	return true
}

// MatchIdentity reports whether an identity is what a pattern describes, for a job and a
// task of it. No task, "", matches no {task}, and so with the job.
func MatchIdentity(pattern, identity, job, task string) bool {
	// Most patterns of many do not match, and are told so by how they begin.
	literal := strings.IndexAny(pattern, "*{")
	if literal < 0 {
		return pattern == identity
	}
	if !strings.HasPrefix(identity, pattern[:literal]) {
		return false
	}
	for {
		p, morePattern, inPattern := strings.Cut(pattern, "/")
		if p == "**" && !inPattern {
			return identity != ""
		}
		s, moreIdentity, inIdentity := strings.Cut(identity, "/")
		if inPattern != inIdentity || !matchSegment(p, s, job, task) {
			return false
		}
		if !inPattern {
			return true
		}
		pattern, identity = morePattern, moreIdentity
	}
}

func matchSegment(p, s, job, task string) bool {
	if p == "*" {
		return s != ""
	}
	for p != "" {
		place := strings.IndexByte(p, '{')
		if place < 0 {
			break
		}
		if !strings.HasPrefix(s, p[:place]) {
			return false
		}
		name := job
		rest, isJob := strings.CutPrefix(p[place:], jobPlace)
		if !isJob {
			name, rest = task, strings.TrimPrefix(p[place:], taskPlace)
		}
		s = s[place:]
		if name == "" || !strings.HasPrefix(s, name) {
			return false
		}
		p, s = rest, s[len(name):]
	}
	return p == s
}

// Equal is ==.
func (a Access) Equal(b Access) bool { return a == b }

// All are the patterns with their verbs, in the order of Verbs and then as they were given.
func (a Access) All() iter.Seq2[Verb, string] {
	return func(yield func(Verb, string) bool) {
		for line := range strings.Lines(a.text) {
			name, pattern, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
			if v, err := ParseVerb(name); err == nil && !yield(v, pattern) {
				return
			}
		}
	}
}

// Of are the patterns of one verb, as they were given.
func (a Access) Of(v Verb) (patterns []string) {
	for w, p := range a.All() {
		if w == v {
			patterns = append(patterns, p)
		}
	}
	return patterns
}

// Allows reports whether the identity may do v with the job, or with its task, and by which
// verb and pattern. What may own as one task may watch as if it were any.
func (a Access) Allows(v Verb, identity, job, task string) (by Verb, pattern string, ok bool) {
	name := ""
	var w Verb
	for line := range strings.Lines(a.text) {
		is, p, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if is != name { // those of one verb stand together
			name = is
			w, _ = ParseVerb(name)
		}
		as := task
		if w == Own && v != Own && task == "" {
			as = taskIn(p, identity, job)
		}
		if w.Implies(v) && MatchIdentity(p, identity, job, as) {
			return w, p, true
		}
	}
	return 0, "", false
}

// taskIn is the task that the identity may be by a pattern with {task}, as far as that can be
// one; "" without. What may own as any task may watch, for which no task is asked about.
func taskIn(pattern, identity, job string) string {
	before, after, ok := strings.Cut(pattern, taskPlace)
	if !ok {
		return ""
	}
	prefix := before[strings.LastIndexByte(before, '/')+1:]
	suffix, _, _ := strings.Cut(after, "/")
	s := identity
	for range strings.Count(before, "/") {
		_, s, _ = strings.Cut(s, "/")
	}
	s, _, _ = strings.Cut(s, "/")
	prefix, suffix = strings.ReplaceAll(prefix, jobPlace, job), strings.ReplaceAll(suffix, jobPlace, job)
	s, begins := strings.CutPrefix(s, prefix)
	s, ends := strings.CutSuffix(s, suffix)
	if !begins || !ends || !ValidToken(s, MaxNameLen) {
		return ""
	}
	return s
}
