package jobfile

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/strictyaml"
)

const (
	limitsField    = "limits"
	customersField = limitsField + ".customers."
)

// readLimits reads the mapping "limits". The line is that of the error.
func readLimits(m *yaml.Node) (l assignment.Limits, line int, err error) {
	top, line, err := strictyaml.Mapping(m, limitsField, limitsField+".", []string{"default", "customers"})
	if err != nil {
		return l, line, err
	}
	var others assignment.Limit
	named := make(map[string]assignment.Limit)
	for _, x := range top {
		if x.Name == "default" {
			if others, line, err = readLimit(x.Value, limitsField+".default"); err != nil {
				return l, line, err
			}
			continue
		}
		if x.Value.Kind != yaml.MappingNode {
			return l, x.Value.Line, &assignment.FieldError{Field: "limits.customers", Value: strictyaml.Describe(x.Value), Allowed: "customers and their limits"}
		}
		for i := 0; i+1 < len(x.Value.Content); i += 2 {
			key, value := x.Value.Content[i], x.Value.Content[i+1]
			name := key.Value
			if _, twice := named[name]; twice || key.Kind != yaml.ScalarNode {
				return l, key.Line, &assignment.FieldError{Field: "customer in limits", Value: strictyaml.Describe(key), Allowed: "each customer once"}
			}
			if named[name], line, err = readLimit(value, customersField+name); err != nil {
				return l, line, err
			}
		}
	}
	l, err = assignment.LimitsOf(others, named)
	return l, m.Line, err
}

// readLimit reads one limit, whose fields are called prefix and key.
func readLimit(m *yaml.Node, prefix string) (l assignment.Limit, line int, err error) {
	prefix += "."
	of, line, err := strictyaml.Mapping(m, prefix[:len(prefix)-1], prefix, []string{"rate", "max_criticality"})
	if err != nil {
		return l, line, err
	}
	for _, x := range of {
		refuse := func(allowed string) (assignment.Limit, int, error) {
			return l, x.Value.Line, &assignment.FieldError{Field: prefix + x.Name, Value: strictyaml.Describe(x.Value), Allowed: allowed}
		}
		switch x.Name {
		case "rate":
			l.Rate, err = strconv.ParseFloat(x.Value.Value, 64)
			if err != nil || x.Value.Tag != "!!int" && x.Value.Tag != "!!float" || !(l.Rate > 0 && l.Rate <= assignment.MaxLimitRate) {
				return refuse(fmt.Sprintf("above 0, to %g units of load a second", float64(assignment.MaxLimitRate)))
			}
		case "max_criticality":
			if l.MaxCriticality, err = assignment.ParseCriticality(x.Value.Value); err != nil {
				return refuse(err.(*assignment.FieldError).Allowed)
			}
		}
	}
	return l, m.Line, nil
}

// limitSettings are the settings of limits, by name, with their values as in a file.
func limitSettings(l assignment.Limits) map[string]string {
	all := make(map[string]string)
	add := func(name string, x assignment.Limit) {
		if x.Rate > 0 {
			all[name+".rate"] = strconv.FormatFloat(x.Rate, 'g', -1, 64)
		}
		if x.MaxCriticality != 0 {
			all[name+".max_criticality"] = x.MaxCriticality.String()
		}
	}
	add(limitsField+".default", l.Others())
	for name, x := range l.All() {
		add(customersField+name, x)
		if x == (assignment.Limit{}) {
			all[customersField+name] = "{}" // not others'
		}
	}
	return all
}

// limitChanges are the settings in which limits differ, in order of name.
func limitChanges(old, next assignment.Limits) (all []Change) {
	if old == next {
		return nil
	}
	from, to := limitSettings(old), limitSettings(next)
	names := maps.Clone(from)
	maps.Copy(names, to)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if from[name] != to[name] {
			all = append(all, Change{name, from[name], to[name]})
		}
	}
	return all
}

func formatLimits(b *bytes.Buffer, l assignment.Limits) {
	if l == (assignment.Limits{}) {
		return
	}
	b.WriteString(limitsField + ":\n")
	one := func(x assignment.Limit) string {
		of := ""
		if x.Rate > 0 {
			of = "rate: " + strconv.FormatFloat(x.Rate, 'g', -1, 64)
		}
		if x.MaxCriticality != 0 {
			if of != "" {
				of += ", "
			}
			of += "max_criticality: " + x.MaxCriticality.String()
		}
		return "{" + of + "}"
	}
	if x := l.Others(); x != (assignment.Limit{}) {
		fmt.Fprintf(b, "  default: %s\n", one(x))
	}
	first := true
	for name, x := range l.All() {
		if first {
			b.WriteString("  customers:\n")
		}
		first = false
		fmt.Fprintf(b, "    %s: %s\n", quoted(name), one(x))
	}
}
