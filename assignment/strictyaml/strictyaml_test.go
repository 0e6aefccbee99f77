package strictyaml

import (
	"errors"
	"strings"
	"testing"

	"github.com/slicer-project/slicer/assignment"
)

func TestDocuments(t *testing.T) {
	for text, want := range map[string]int{"": 0, "---\n": 0, "a: 1\n": 1, "a: 1\n---\nb: 2\n---\n": 2} {
		if roots, err := Documents("f", []byte(text)); err != nil || len(roots) != want {
			t.Errorf("%q: %d documents, %v; want %d", text, len(roots), err, want)
		}
	}
	for text, want := range map[string]string{
		"a: [":                             "f:1: not YAML: ",
		"a: 1\n\tb: 2\n":                   "f:2: not YAML: ",
		"\x00":                             "f: not YAML: ",
		strings.Repeat("#", MaxSize) + "#": "f: 1048577 bytes, at most 1048576 are allowed",
	} {
		_, err := Documents("f", []byte(text))
		var at *Error
		if !errors.As(err, &at) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.20q: %v, want %s", text, err, want)
		}
	}
}

func TestMapping(t *testing.T) {
	for text, want := range map[string]string{
		"a: 1\nb: {}\n":    "",
		"a: 1\nc: 2\n":     `2: field of thing: "c" is not allowed: want a, b`,
		"a: 1\nb: 2\na: 3": `3: field: "in.a" is not allowed: want each field once; it is in line 1 already`,
		"[a, b]":           `1: thing: "a list of 2" is not allowed: want fields and their values: a, b`,
		"? {a: 1}\n: 2\n":  `1: field of thing: "a mapping" is not allowed: want a, b`,
		"x: &x 1\n*x : 2":  `1: field of thing: "x" is not allowed: want a, b`,
	} {
		roots, err := Documents("f", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		fields, line, err := Mapping(roots[0], "thing", "in.", []string{"a", "b"})
		if want == "" {
			if err != nil || len(fields) != 2 || fields[1].Name != "b" || fields[1].Line != 2 {
				t.Errorf("%q: %v, %v", text, fields, err)
			}
			continue
		}
		at := &Error{"f", line, err}
		if _, ok := errors.AsType[*assignment.FieldError](err); !ok || at.Error() != "f:"+want {
			t.Errorf("%q: %v, want %s", text, at, want)
		}
	}
}
