// Package rulefile reads the rules of a proxy from YAML: what an operator keeps
// under version control and gives to "slicerproxy --config".
//
//	trusted_proxies: 0           # that stand before this one
//	rules:                       # the first that fits a request counts
//	  - host: api.example.com    # or *.example.com; any if left out
//	    path: /users/{id}/       # as http.ServeMux writes it; any if left out
//	    job: profiles            # whose tasks serve these requests
//	    key:                     # the first that the request has
//	      - wildcard: id         # of the rule's path
//	      - header: X-User
//	    missing: refuse          # answer 400; the default any goes to any task
//	    upstream: h2c            # or http, the default, or https
//	  - job: web
//	    key:
//	      - cookie: session
//	      - query: user
//	      - segment: 2           # of the path, from 1
//	      - client_address       # by X-Forwarded-For if proxies are trusted
//
// Reading is strict: unknown fields, fields given twice, values of another type
// and values out of range are errors that name the file, the line, the field,
// the value and what is allowed. Anchors may be there but aliases and merges may
// not, so that a small file is a small config.
package rulefile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/clerk/clerkhttp"
)

// MaxSize bounds a file, bytes.
const MaxSize = 1 << 20

// Error says where in a file something is wrong. Err is an
// *assignment.FieldError when a field is to blame.
type Error struct {
	File string
	Line int // from 1; 0 when it is about the file as a whole
	Err  error
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %v", e.File, e.Err)
	}
	return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err)
}

// Unwrap returns what is wrong.
func (e *Error) Unwrap() error { return e.Err }

// Parse reads the rules in a file's content. The file's name is for errors, which
// are of type *Error.
func Parse(file string, data []byte) (clerkhttp.Rules, error) {
	fail := func(line int, err error) (clerkhttp.Rules, error) {
		return clerkhttp.Rules{}, &Error{file, line, err}
	}
	if len(data) > MaxSize {
		return fail(0, fmt.Errorf("%d bytes, at most %d are allowed", len(data), MaxSize))
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, more yaml.Node
	switch err := dec.Decode(&doc); {
	case err == io.EOF:
		return fail(0, errors.New("there are no rules in it"))
	case err != nil:
		return fail(syntax(err))
	}
	switch err := dec.Decode(&more); {
	case err == nil:
		return fail(more.Line, errors.New("a second document; all rules go into one"))
	case err != io.EOF:
		return fail(syntax(err))
	}
	rules, line, err := readRules(doc.Content[0])
	if err != nil {
		return fail(line, err)
	}
	return rules, nil
}

var yamlLine = regexp.MustCompile(`^yaml: (?:unmarshal errors:\n\s*)?line (\d+): `)

// syntax moves the line of yaml's error to where ours have it.
func syntax(err error) (int, error) {
	text := err.Error()
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		if line, convErr := strconv.Atoi(m[1]); convErr == nil {
			return line, errors.New("not YAML: " + text[len(m[0]):])
		}
	}
	return 0, errors.New("not YAML: " + text)
}

func refuse(field string, value any, allowed string) error {
	return &assignment.FieldError{Field: field, Value: value, Allowed: allowed}
}
