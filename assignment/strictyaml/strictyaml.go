// Package strictyaml is what the readers of configs that operators keep in YAML have
// in common: strictness. Unknown fields and fields given twice are errors that name
// the file, the line, the field and what is allowed. Anchors may be there but aliases
// and merges are not followed, so that a small file is a small config.
package strictyaml

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/slicer-project/slicer/assignment"
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

// Documents returns the roots of the documents in a file's content, leaving out empty
// ones, as after a last ---. The file's name is for the error, which is an *Error.
func Documents(file string, data []byte) ([]*yaml.Node, error) {
	if len(data) > MaxSize {
		return nil, &Error{file, 0, fmt.Errorf("%d bytes, at most %d are allowed", len(data), MaxSize)}
	}
	var roots []*yaml.Node
	for dec := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var doc yaml.Node
		switch err := dec.Decode(&doc); {
		case err == io.EOF:
			return roots, nil
		case err != nil:
			return nil, syntaxError(file, err)
		}
		if root := doc.Content[0]; root.Kind != yaml.ScalarNode || root.Tag != "!!null" {
			roots = append(roots, root)
		}
	}
}

var yamlLine = regexp.MustCompile(`^yaml: (?:(?:unmarshal errors:\s*)?line (\d+): )?((?s:.*))$`)

// syntaxError puts the line that the YAML reader names in its place.
func syntaxError(file string, err error) *Error {
	m := yamlLine.FindStringSubmatch(err.Error())
	if m == nil {
		return &Error{file, 0, err}
	}
	line, _ := strconv.Atoi(m[1]) // 0 when there is none
	return &Error{file, line, errors.New("not YAML: " + m[2])}
}

// Field is one of a mapping's.
type Field struct {
	Name  string
	Line  int
	Value *yaml.Node
}

// Mapping reads the fields of a mapping called what, in the file's order: those that
// are known, each once. Errors put prefix before the names of fields given twice.
func Mapping(n *yaml.Node, what, prefix string, known []string) (fields []Field, line int, err error) {
	if n.Kind != yaml.MappingNode {
		return nil, n.Line, &assignment.FieldError{Field: what, Value: Describe(n), Allowed: "fields and their values: " + strings.Join(known, ", ")}
	}
	seen := make(map[string]int)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind != yaml.ScalarNode || !slices.Contains(known, key.Value) {
			return nil, key.Line, &assignment.FieldError{Field: "field of " + what, Value: Describe(key), Allowed: strings.Join(known, ", ")}
		}
		if first, ok := seen[key.Value]; ok {
			return nil, key.Line, &assignment.FieldError{Field: "field", Value: prefix + key.Value, Allowed: fmt.Sprintf("each field once; it is in line %d already", first)}
		}
		seen[key.Value] = key.Line
		fields = append(fields, Field{key.Value, key.Line, value})
	}
	return fields, n.Line, nil
}

// Describe shows what stands where a value should.
func Describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return fmt.Sprintf("a list of %d", len(n.Content))
	case yaml.AliasNode:
		return "*" + n.Value
	}
	return n.Value
}
