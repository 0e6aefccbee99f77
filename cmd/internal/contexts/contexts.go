// Package contexts is slicerctl's config file: the control planes that an operator works
// with, each under a name, and which of them is current.
//
//	current: staging
//	contexts:
//	  staging:
//	    server: slicer.staging.example.com:4720
//	    tls_cert: staging/ada.crt # names are relative to the folder of this file
//	    tls_key: staging/ada.key
//	    tls_ca: staging/ca.crt
//
// Parse reads it strictly, as package strictyaml does. Update changes a file as a whole, one
// program at a time.
package contexts

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/strictyaml"
	"github.com/slicer-project/slicer/cmd/internal/run"
)

const (
	// MaxSize bounds a file, bytes.
	MaxSize = strictyaml.MaxSize
	// MaxContexts bounds the contexts of a file.
	MaxContexts = 1000
	// maxName bounds the name of a context, and maxFileName that of a file, bytes.
	maxName     = 63
	maxFileName = 4096
)

// What is allowed, for errors.
const (
	aName     = "1 to 63 printable ASCII characters without space or slash"
	aServer   = "host:port to connect to, with a port of 1 to 65535"
	aFileName = "the name of a file, at most 4096 bytes without control characters"
)

// Error says where in a file something is wrong. Err is an *assignment.FieldError when a
// field is to blame.
type Error = strictyaml.Error

// Context is one control plane, and what to connect to it with, as the file has it.
type Context struct {
	Server string // host:port
	// Names of PEM files; empty is none. Cert and Key come together.
	Cert, Key, CA string
}

// Config is what a file says. It is not safe for concurrent use.
type Config struct {
	// Current is the name of one of Contexts, or empty.
	Current  string
	Contexts map[string]Context

	doc *yaml.Node // the same with its comments
}

var (
	fileFields    = []string{"current", "contexts"}
	contextFields = []string{"server", "tls_cert", "tls_key", "tls_ca"}
)

// Parse reads the content of a file, which may be empty. The file's name is for errors,
// which are of type *Error.
func Parse(file string, data []byte) (*Config, error) {
	roots, err := strictyaml.Documents(file, data)
	switch {
	case err != nil:
		return nil, err
	case len(roots) > 1:
		return nil, &Error{File: file, Line: roots[1].Line, Err: errors.New("a second document; all contexts go into one")}
	}
	c := &Config{Contexts: make(map[string]Context), doc: document(data)}
	if len(roots) == 0 {
		return c, nil
	}
	if line, err := c.read(roots[0]); err != nil {
		return nil, &Error{File: file, Line: line, Err: err}
	}
	return c, nil
}

// document is the one of a file that is not empty, with all its comments; or an empty one
// with those that the file has.
func document(data []byte) *yaml.Node {
	for dec := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var doc yaml.Node
		if dec.Decode(&doc) != nil {
			break
		}
		if doc.Content[0].Kind == yaml.MappingNode {
			return &doc
		}
	}
	var comments []string
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, "#") {
			comments = append(comments, strings.TrimRight(line, "\r\n"))
		}
	}
	return &yaml.Node{Kind: yaml.DocumentNode, HeadComment: strings.Join(comments, "\n"), Content: []*yaml.Node{{Kind: yaml.MappingNode}}}
}

// Names are those of the contexts, in order.
func (c *Config) Names() []string { return slices.Sorted(maps.Keys(c.Contexts)) }

// read returns the line of the error.
func (c *Config) read(root *yaml.Node) (line int, err error) {
	top, line, err := strictyaml.Mapping(root, "file", "", fileFields)
	if err != nil {
		return line, err
	}
	var current *yaml.Node
	for _, f := range top {
		if f.Name == "current" {
			current = f.Value
		} else if line, err := c.readContexts(f.Value); err != nil {
			return line, err
		}
	}
	if current == nil {
		return 0, nil
	}
	if c.Current, err = text(current, "current", aName); err != nil {
		return current.Line, err
	}
	if _, ok := c.Contexts[c.Current]; !ok {
		return current.Line, refuse("current", c.Current, "the name of a context: "+c.Known())
	}
	return 0, nil
}

// Known lists the names of the contexts for errors, as many as there is room for.
func (c *Config) Known() string {
	if len(c.Contexts) == 0 {
		return "there is none"
	}
	return assignment.Clip(strings.Join(c.Names(), ", "), 200)
}

func (c *Config) readContexts(n *yaml.Node) (line int, err error) {
	if n.Kind != yaml.MappingNode {
		return n.Line, refuse("contexts", strictyaml.Describe(n), "names of contexts and their fields")
	}
	if len(n.Content)/2 > MaxContexts {
		return n.Line, refuse("contexts", fmt.Sprint(len(n.Content)/2), fmt.Sprintf("at most %d contexts", MaxContexts))
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind != yaml.ScalarNode || checkName(key.Value) != nil {
			return key.Line, refuse("name of a context", strictyaml.Describe(key), aName)
		}
		if _, ok := c.Contexts[key.Value]; ok {
			return key.Line, refuse("name of a context", key.Value, "each context once")
		}
		x, line, err := readContext("contexts."+key.Value, value)
		if err != nil {
			return line, err
		}
		c.Contexts[key.Value] = x
	}
	return 0, nil
}

func readContext(what string, n *yaml.Node) (x Context, line int, err error) {
	fields, line, err := strictyaml.Mapping(n, what, what+".", contextFields)
	if err != nil {
		return x, line, err
	}
	for _, f := range fields {
		to, allowed := &x.Server, aServer
		switch f.Name {
		case "tls_cert":
			to, allowed = &x.Cert, aFileName
		case "tls_key":
			to, allowed = &x.Key, aFileName
		case "tls_ca":
			to, allowed = &x.CA, aFileName
		}
		if *to, err = text(f.Value, what+"."+f.Name, allowed); err != nil {
			return x, f.Value.Line, err
		}
	}
	if field, bad := x.check(what); bad != nil {
		for _, f := range fields {
			if what+"."+f.Name == field {
				return x, f.Value.Line, bad
			}
		}
		return x, n.Line, bad // it is missing
	}
	return x, 0, nil
}

// text is a field's value.
func text(n *yaml.Node, field, allowed string) (string, error) {
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" || n.Value == "" {
		return "", refuse(field, strictyaml.Describe(n), allowed)
	}
	return n.Value, nil
}

func checkName(name string) error {
	if !assignment.ValidToken(name, maxName) {
		return refuse("name of a context", name, aName)
	}
	return nil
}

// check names the first field of a context called what that is not allowed, or is missing.
func (x *Context) check(what string) (field string, err error) {
	switch {
	case x.Server == "":
		return missing(what+".server", aServer)
	case run.CheckDialable("", x.Server) != nil || !printable(x.Server):
		return what + ".server", refuse(what+".server", x.Server, aServer)
	case x.Cert != "" && x.Key == "":
		return missing(what+".tls_key", "the file with the key of tls_cert")
	case x.Key != "" && x.Cert == "":
		return missing(what+".tls_cert", "the file with the certificate of tls_key")
	}
	for _, f := range []struct{ name, value string }{{"tls_cert", x.Cert}, {"tls_key", x.Key}, {"tls_ca", x.CA}} {
		if len(f.value) > maxFileName || !printable(f.value) {
			return what + "." + f.name, refuse(what+"."+f.name, f.value, aFileName)
		}
	}
	return "", nil
}

func missing(field, want string) (string, error) {
	return field, fmt.Errorf("%s is missing: want %s", field, want)
}

// printable reports whether a terminal shows the text as it is.
func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar })
}

func refuse(field, value, allowed string) *assignment.FieldError {
	return &assignment.FieldError{Field: field, Value: assignment.Clip(value, 80), Allowed: allowed}
}
