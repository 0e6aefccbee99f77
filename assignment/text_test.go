package assignment_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/slicer-project/slicer/assignment"
)

func TestClip(t *testing.T) {
	for _, c := range []struct {
		s    string
		most int
		want string
	}{
		{"", 3, ""},
		{"cache", 5, "cache"},
		{"caches", 5, "ca..."},
		{"Grüße", 7, "Grüße"},
		{"Grüßen", 7, "Grü..."},
		{"Grüßen", 6, "Gr..."},
		{"a\xff\xfeb", 80, "a?b"},
		{strings.Repeat("\x80", 90), 80, "..."},
		{"世界世界", 3, "..."},
	} {
		if got := assignment.Clip(c.s, c.most); got != c.want || len(got) > c.most || !utf8.ValidString(got) {
			t.Errorf("Clip(%q, %d) = %q, want %q", c.s, c.most, got, c.want)
		}
	}
}

func TestValidToken(t *testing.T) {
	for s, want := range map[string]bool{
		"": false, "a": true, "10.0.0.1:8080": true, "abcdefgh": true, "0123456789abc": true, "0123456789abcd": false,
		"a b": false, "a/b": false, "\t": false, "ü": false, "\x7f": false, "~!": true,
	} {
		if got := assignment.ValidToken(s, 13); got != want {
			t.Errorf("ValidToken(%q) = %v", s, got)
		}
	}
}
