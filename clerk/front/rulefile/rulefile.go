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
//	    criticality: critical    # the job's default if left out
//	    criticality_from:        # where a request says its own
//	      - header: X-Criticality
//	    customer:                # whom a request is charged to, the first that it has
//	      - header: X-Tenant
//	    default_customer: web    # if it has none
//	    timeout: 2s              # how long a request may take; any time if left out
//	    limit:                   # what this proxy lets through; anything if left out
//	      rate: 500              # requests a second
//	      under_way: 200         # requests at a time
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
	"errors"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/strictyaml"
	"github.com/slicer-project/slicer/clerk/front"
)

// MaxSize bounds a file, bytes.
const MaxSize = strictyaml.MaxSize

// Error says where in a file something is wrong. Err is an
// *assignment.FieldError when a field is to blame.
type Error = strictyaml.Error

// Parse reads the rules in a file's content. The file's name is for errors, which
// are of type *Error.
func Parse(file string, data []byte) (front.Rules, error) {
	fail := func(line int, err error) (front.Rules, error) {
		return front.Rules{}, &Error{File: file, Line: line, Err: err}
	}
	docs, err := strictyaml.Documents(file, data)
	switch {
	case err != nil:
		return front.Rules{}, err
	case len(docs) == 0:
		return fail(0, errors.New("there are no rules in it"))
	case len(docs) > 1:
		return fail(docs[1].Line, errors.New("a second document; all rules go into one"))
	}
	rules, line, err := readRules(docs[0])
	if err != nil {
		return fail(line, err)
	}
	return rules, nil
}

func refuse(field string, value any, allowed string) error {
	return &assignment.FieldError{Field: field, Value: value, Allowed: allowed}
}
