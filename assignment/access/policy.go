package access

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/strictyaml"
)

// MaxBoundedIdentities is how many patterns a policy may give bounds of their own.
const MaxBoundedIdentities = 1000

// Bounds are how much one identity may have. Zero stands for the default of the policy.
type Bounds struct {
	// Jobs that it has created: 1 to 2^31-1, by default 100.
	Jobs int
	// Tasks of all jobs that are connected to one Distributor as it: 1 to 2^31-1, by default
	// 10,000.
	Tasks int
}

// defaultBounds are those of a policy that says nothing.
var defaultBounds = Bounds{Jobs: 100, Tasks: 10000}

// Policy says what holds for all jobs of a process. It does not change.
type Policy struct {
	plane, admin, proxies []string
	jobs                  assignment.Access
	bounds                []bounded // the last one matches all
}

type bounded struct {
	pattern string
	Bounds
}

// Parse reads a policy. The file's name is for errors, which are of type *strictyaml.Error.
func Parse(file string, data []byte) (*Policy, error) {
	roots, err := strictyaml.Documents(file, data)
	if err != nil {
		return nil, err
	}
	if len(roots) != 1 {
		return nil, &strictyaml.Error{File: file, Err: fmt.Errorf("there are %d documents in it: want one, the policy", len(roots))}
	}
	p := &Policy{}
	line, err := p.read(roots[0])
	if err != nil {
		return nil, &strictyaml.Error{File: file, Line: line, Err: err}
	}
	return p, nil
}

func (p *Policy) read(root *yaml.Node) (line int, err error) {
	fields, line, err := strictyaml.Mapping(root, "policy", "", []string{"plane", "admin", "proxies", "jobs", "bounds"})
	if err != nil {
		return line, err
	}
	p.bounds = []bounded{{"**", defaultBounds}}
	for _, x := range fields {
		switch x.Name {
		case "plane":
			p.plane, line, err = identities(x.Value, x.Name)
		case "admin":
			p.admin, line, err = identities(x.Value, x.Name)
		case "proxies":
			p.proxies, line, err = identities(x.Value, x.Name)
		case "jobs":
			p.jobs, line, err = ReadAccess(x.Value, x.Name)
		case "bounds":
			p.bounds, line, err = readBounds(x.Value)
		}
		if err != nil {
			return line, err
		}
	}
	return 0, nil
}

// identities reads patterns for which no job and no task is asked about.
func identities(n *yaml.Node, field string) (list []string, line int, err error) {
	if list, line, err = patterns(n, field); err == nil {
		line, err = n.Line, assignment.CheckPatterns(field, list, false, false)
	}
	return list, line, err
}

// patterns reads a list of texts, or one alone.
func patterns(n *yaml.Node, field string) (list []string, line int, err error) {
	all := []*yaml.Node{n}
	if n.Kind == yaml.SequenceNode {
		all = n.Content
	}
	for _, x := range all {
		if x.Kind != yaml.ScalarNode || x.Tag != "!!str" {
			return nil, x.Line, &assignment.FieldError{Field: field, Value: strictyaml.Describe(x), Allowed: "patterns of identities"}
		}
		list = append(list, x.Value)
	}
	return list, n.Line, nil
}

// ReadAccess reads a mapping from verbs to patterns, which is called field. The line is that
// of the error.
func ReadAccess(n *yaml.Node, field string) (a assignment.Access, line int, err error) {
	var names []string
	for _, v := range assignment.Verbs {
		names = append(names, v.String())
	}
	fields, line, err := strictyaml.Mapping(n, field, field+".", names)
	if err != nil {
		return a, line, err
	}
	given := make(map[assignment.Verb][]string)
	for _, x := range fields {
		v, _ := assignment.ParseVerb(x.Name)
		list, line, err := patterns(x.Value, field+"."+x.Name)
		if err == nil {
			line, err = x.Value.Line, assignment.CheckPatterns(field+"."+x.Name, list, v == assignment.Own, true)
		}
		if err != nil {
			return a, line, err
		}
		given[v] = list
	}
	a, err = assignment.AccessOf(given)
	return a, n.Line, err
}

func readBounds(n *yaml.Node) (all []bounded, line int, err error) {
	fields, line, err := strictyaml.Mapping(n, "bounds", "bounds.", []string{"default", "identities"})
	if err != nil {
		return nil, line, err
	}
	others := defaultBounds
	for _, x := range fields {
		if x.Name == "default" {
			if others, line, err = readBound(x.Value, "bounds.default", others); err != nil {
				return nil, line, err
			}
		}
	}
	for _, x := range fields {
		if x.Name != "identities" {
			continue
		}
		if all, line, err = readIdentities(x.Value, others); err != nil {
			return nil, line, err
		}
	}
	return append(all, bounded{"**", others}), 0, nil
}

func readIdentities(n *yaml.Node, others Bounds) (all []bounded, line int, err error) {
	const field = "bounds.identities"
	if n.Kind != yaml.MappingNode {
		return nil, n.Line, &assignment.FieldError{Field: field, Value: strictyaml.Describe(n), Allowed: "patterns of identities and their bounds"}
	}
	if many := len(n.Content) / 2; many > MaxBoundedIdentities {
		return nil, n.Line, &assignment.FieldError{Field: field, Value: many, Allowed: fmt.Sprintf("at most %d patterns", MaxBoundedIdentities)}
	}
	for pair := range slices.Chunk(n.Content, 2) {
		list, line, err := identities(pair[0], field)
		if err != nil {
			return nil, line, err
		}
		if slices.ContainsFunc(all, func(b bounded) bool { return b.pattern == list[0] }) {
			return nil, line, &assignment.FieldError{Field: field, Value: list[0], Allowed: "each pattern once"}
		}
		b, line, err := readBound(pair[1], field+"."+list[0], others)
		if err != nil {
			return nil, line, err
		}
		all = append(all, bounded{list[0], b})
	}
	return all, 0, nil
}

// readBound reads bounds, which are those of others where they do not say.
func readBound(n *yaml.Node, field string, others Bounds) (b Bounds, line int, err error) {
	fields, line, err := strictyaml.Mapping(n, field, field+".", []string{"jobs", "tasks"})
	if err != nil {
		return b, line, err
	}
	b = others
	for _, x := range fields {
		v, err := strconv.Atoi(x.Value.Value)
		if err != nil || x.Value.Tag != "!!int" || v < 1 || v > math.MaxInt32 {
			return b, x.Value.Line, &assignment.FieldError{Field: field + "." + x.Name, Value: strictyaml.Describe(x.Value), Allowed: "1 to 2147483647"}
		}
		if x.Name == "jobs" {
			b.Jobs = v
		} else {
			b.Tasks = v
		}
	}
	return b, n.Line, nil
}
