package assignment_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/slicer-project/slicer/assignment"
)

func TestMatchIdentity(t *testing.T) {
	for _, tc := range []struct {
		pattern, identity, job, task string
		want                         bool
	}{
		{"spiffe://corp/ns/cache", "spiffe://corp/ns/cache", "", "", true},
		{"spiffe://corp/ns/cache", "spiffe://corp/ns/cache2", "", "", false},
		{"spiffe://corp/ns/cache", "spiffe://corp/ns/cach", "", "", false},
		{"spiffe://corp/ns/cache", "spiffe://corp/ns/cache/x", "", "", false},
		{"spiffe://corp/ns/cache/x", "spiffe://corp/ns/cache", "", "", false},
		{"spiffe://corp/*/cache", "spiffe://corp/ns/cache", "", "", true},
		{"spiffe://corp/*/cache", "spiffe://corp/a/b/cache", "", "", false},
		{"spiffe://*/ns", "spiffe://corp/ns", "", "", true},
		{"spiffe://corp/*", "spiffe://corp/", "", "", false},
		{"spiffe://corp/**", "spiffe://corp/a/b/c", "", "", true},
		{"spiffe://corp/**", "spiffe://corp", "", "", false},
		{"spiffe://corp/**", "spiffe://corpse/a", "", "", false},
		{"**", "anonymous", "", "", true},
		{"**", "spiffe://corp/a", "", "", true},
		{"*", "a.b", "", "", true},
		{"*", "spiffe://corp", "", "", false},
		{"spiffe://corp/{job}/{task}", "spiffe://corp/cache/t-1", "cache", "t-1", true},
		{"spiffe://corp/{job}/{task}", "spiffe://corp/cache/t-2", "cache", "t-1", false},
		{"spiffe://corp/{job}/{task}", "spiffe://corp/cache/", "cache", "", false},
		{"{task}.{job}.svc", "t.cache.svc", "cache", "t", true},
		{"{task}.{job}.svc", "t.cache.svc", "cache", "t.cache", false},
		{"{task}.{job}.svc", "x.t.cache.svc", "cache", "t", false},
		{"{task}.cache.svc", "*.cache.svc", "cache", "*", true}, // a name is no pattern
		{"{task}", "x", "cache", "*", false},
		{"a-{task}-{task}", "a-x-x", "", "x", true},
	} {
		if got := assignment.MatchIdentity(tc.pattern, tc.identity, tc.job, tc.task); got != tc.want {
			t.Errorf("%q for %q, job %q, task %q: %v", tc.pattern, tc.identity, tc.job, tc.task, got)
		}
	}
}

func TestPatterns(t *testing.T) {
	for _, p := range []string{"spiffe://corp/a", "spiffe://corp", "a.b", "*", "**", "spiffe://corp/**", "spiffe://{job}/*/x", "{task}.x", "spiffe://corp/Upper", "anonymous"} {
		if !assignment.ValidPattern(p) {
			t.Errorf("%q is refused", p)
		}
	}
	for _, p := range []string{"", " ", "a b", "a,b", "a\n", "é", "spiffe:///a", "spiffe://corp//a", "spiffe://corp/a/", "/a", "spiffe://corp/a*", "spiffe://**/a", "***",
		"{x}", "{task", "task}", "{Task}", "Host.corp", strings.Repeat("a", 513), "//", "spiffe://"} {
		if assignment.ValidPattern(p) {
			t.Errorf("%q is taken", p)
		}
	}
}

func TestAccess(t *testing.T) {
	a, err := assignment.AccessOf(map[assignment.Verb][]string{
		assignment.Configure: {"spiffe://corp/deploy"}, assignment.Own: {"spiffe://corp/{task}"}, assignment.Order: {"spiffe://corp/ops", "spiffe://corp/oncall"},
	})
	if err != nil {
		t.Fatal(err)
	}
	// Which verbs each has, task t being asked about.
	for identity, want := range map[string][]assignment.Verb{
		"spiffe://corp/t": {assignment.Own, assignment.Watch}, "spiffe://corp/u": nil, "spiffe://corp/ops": {assignment.Read, assignment.Order},
		"spiffe://corp/deploy": {assignment.Read, assignment.Configure}, "anonymous": nil, "": nil,
	} {
		var got []assignment.Verb
		for _, v := range assignment.Verbs {
			if _, _, ok := a.Allows(v, identity, "cache", "t"); ok {
				got = append(got, v)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s may %v, want %v", identity, got, want)
		}
	}
	if got := a.Of(assignment.Order); !slices.Equal(got, []string{"spiffe://corp/ops", "spiffe://corp/oncall"}) || a.Of(assignment.Watch) != nil {
		t.Errorf("%q", got)
	}
	for _, v := range assignment.Verbs {
		if again, err := assignment.ParseVerb(v.String()); err != nil || again != v {
			t.Errorf("%v, %v", again, err)
		}
	}
}

func TestAccessRefused(t *testing.T) {
	for want, given := range map[string]map[assignment.Verb][]string{
		"access":           nil,
		"access.own":       {assignment.Own: {"spiffe://corp/{job}", "a b"}},
		"access.watch":     {assignment.Watch: {"spiffe://corp/{task}"}},
		"access.read":      {assignment.Read: slices.Repeat([]string{"a"}, 101)},
		"access.configure": {assignment.Configure: {"a", "a"}},
	} {
		_, err := assignment.AccessOf(given)
		if f, ok := errors.AsType[*assignment.FieldError](err); !ok || f.Field != want {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// An identity that may be a task of the job, be it of one name alone, may watch it.
func TestOwnersMayWatch(t *testing.T) {
	for _, c := range []struct {
		pattern, identity string
		want              bool
	}{
		{"spiffe://corp/{job}/task/{task}", "spiffe://corp/cache/task/t-1", true},
		{"spiffe://corp/{job}/task/{task}", "spiffe://corp/web/task/t-1", false},
		{"spiffe://corp/{job}/task/{task}", "spiffe://corp/cache/task", false},
		{"spiffe://corp/{job}/task/{task}", "spiffe://corp/cache/task/t-1/x", false},
		{"spiffe://corp/{job}-{task}-x/**", "spiffe://corp/cache-t-x/y/z", true},
		{"spiffe://corp/{job}-{task}-x/**", "spiffe://corp/cache--x/y", false},
		{"spiffe://corp/{task}/{task}", "spiffe://corp/a/a", true},
		{"spiffe://corp/{task}/{task}", "spiffe://corp/a/b", false},
		{"{task}.cache.corp", "t-1.cache.corp", true},
		{"{task}.cache.corp", ".cache.corp", false},
		{"{task}.cache.corp", "t-1.web.corp", false},
	} {
		a, err := assignment.AccessOf(map[assignment.Verb][]string{assignment.Own: {c.pattern}})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, got := a.Allows(assignment.Watch, c.identity, "cache", ""); got != c.want {
			t.Errorf("%s with %s may watch: %v, want %v", c.identity, c.pattern, got, c.want)
		}
		if _, _, got := a.Allows(assignment.Own, c.identity, "cache", ""); got {
			t.Errorf("%s with %s may own without a task", c.identity, c.pattern)
		}
		if _, _, got := a.Allows(assignment.Read, c.identity, "cache", ""); got {
			t.Errorf("%s with %s may read", c.identity, c.pattern)
		}
	}
}
