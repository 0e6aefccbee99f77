package rulefile

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/httpkey"
	"github.com/slicer-project/slicer/assignment/strictyaml"
	"github.com/slicer-project/slicer/clerk/front"
)

// clientAddress is the source that takes no argument.
const clientAddress = "client_address"

var (
	fileFields   = []string{"trusted_proxies", "rules"}
	ruleFields   = []string{"host", "path", "job", "key", "missing", "upstream", "criticality", "criticality_from", "customer", "default_customer", "timeout", "limit"}
	limitFields  = []string{"rate", "under_way"}
	sourceFields = []string{"header", "cookie", "query", "wildcard", "segment"}
)

// fields are a mapping's, by name.
type fields map[string]*yaml.Node

// mapping reads the fields of a mapping called what.
func mapping(n *yaml.Node, what string, known []string) (fields, int, error) {
	list, line, err := strictyaml.Mapping(n, what, "", known)
	if err != nil {
		return nil, line, err
	}
	f := fields{}
	for _, x := range list {
		f[x.Name] = x.Value
	}
	return f, 0, nil
}

// text is a field's value, empty if it is not given.
func (f fields) text(name string) (string, int, error) {
	n := f[name]
	if n == nil {
		return "", 0, nil
	}
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" || n.Value == "" {
		return "", n.Line, refuse(name, strictyaml.Describe(n), "a value")
	}
	return n.Value, 0, nil
}

func (f fields) number(name string) (int, int, error) {
	n := f[name]
	if n == nil {
		return 0, 0, nil
	}
	i, err := strconv.Atoi(n.Value)
	if err != nil || n.Kind != yaml.ScalarNode || n.Tag != "!!int" {
		return 0, n.Line, refuse(name, strictyaml.Describe(n), "a whole number")
	}
	return i, 0, nil
}

// readRules returns the line of the error.
func readRules(root *yaml.Node) (rules front.Rules, line int, err error) {
	f, line, err := mapping(root, "file", fileFields)
	if err != nil {
		return rules, line, err
	}
	if rules.TrustedProxies, line, err = f.number("trusted_proxies"); err != nil {
		return rules, line, err
	}
	if n := rules.TrustedProxies; n < 0 || n > httpkey.MaxProxies {
		return rules, f["trusted_proxies"].Line, refuse("trusted_proxies", n, fmt.Sprintf("0 to %d", httpkey.MaxProxies))
	}
	list := f["rules"]
	switch {
	case list == nil:
		return rules, root.Line, refuse("rules", "missing", "a list of rules")
	case list.Kind != yaml.SequenceNode || len(list.Content) == 0 || len(list.Content) > front.MaxRules:
		return rules, list.Line, refuse("rules", strictyaml.Describe(list), fmt.Sprintf("a list of 1 to %d rules", front.MaxRules))
	}
	lines := map[[2]string]int{}
	for _, n := range list.Content {
		r, line, err := readRule(n, rules.TrustedProxies)
		if err != nil {
			return rules, line, err
		}
		at := [2]string{strings.ToLower(r.Host), r.Path}
		if first, ok := lines[at]; ok {
			return rules, n.Line, refuse("path", r.Path, fmt.Sprintf("another host or path than the rule in line %d, before which this one never comes", first))
		}
		lines[at] = n.Line
		rules.List = append(rules.List, r)
	}
	return rules, 0, rules.Validate()
}

func readRule(n *yaml.Node, trusted int) (r front.Rule, line int, err error) {
	f, line, err := mapping(n, "rule", ruleFields)
	if err != nil {
		return r, line, err
	}
	var missing, upstream, criticality, timeout string
	for _, t := range []struct {
		name string
		to   *string
	}{{"host", &r.Host}, {"path", &r.Path}, {"job", &r.Job}, {"missing", &missing}, {"upstream", &upstream}, {"criticality", &criticality}, {"timeout", &timeout}, {"default_customer", &r.DefaultCustomer}} {
		if *t.to, line, err = f.text(t.name); err != nil {
			return r, line, err
		}
	}
	if f["job"] == nil {
		return r, n.Line, refuse("job", "missing", "the name of the job that serves these requests")
	}
	if missing != "" {
		if r.Missing, err = front.ParseMissing(missing); err != nil {
			return r, f["missing"].Line, err
		}
	}
	if upstream != "" {
		if r.Upstream, err = front.ParseUpstream(upstream); err != nil {
			return r, f["upstream"].Line, err
		}
	}
	if criticality != "" {
		if r.Criticality, err = assignment.ParseCriticality(criticality); err != nil {
			return r, f["criticality"].Line, err
		}
	}
	if timeout != "" {
		if r.Timeout, err = time.ParseDuration(timeout); err != nil || r.Timeout == 0 {
			return r, f["timeout"].Line, refuse("timeout", timeout, "1ms to 24h, such as 400ms")
		}
	}
	for _, t := range []struct {
		name string
		to   *[]httpkey.Source
	}{{"key", &r.Key}, {"criticality_from", &r.CriticalityFrom}, {"customer", &r.Customer}} {
		if n := f[t.name]; n != nil {
			if *t.to, line, err = readSources(n, t.name, r.Path, f["path"], trusted); err != nil {
				return r, line, err
			}
		}
	}
	if n := f["limit"]; n != nil {
		if r.Limit, line, err = readLimit(n); err != nil {
			return r, line, err
		}
	}
	line = n.Line
	if err = r.Validate(); err != nil {
		if wrong, ok := errors.AsType[*assignment.FieldError](err); ok {
			name := wrong.Field
			if name == "job name" {
				name = "job"
			}
			if at := f[name]; at != nil {
				line = at.Line
			}
		}
	}
	return r, line, err
}

func readLimit(n *yaml.Node) (l front.Limit, line int, err error) {
	f, line, err := mapping(n, "limit", limitFields)
	if err != nil {
		return l, line, err
	}
	if len(f) == 0 {
		return l, n.Line, refuse("limit", "no fields", strings.Join(limitFields, " or ")+", or both")
	}
	if n := f["rate"]; n != nil {
		if l.Rate, err = strconv.ParseFloat(n.Value, 64); err != nil || n.Kind != yaml.ScalarNode || !(l.Rate > 0 && l.Rate <= front.MaxRate) {
			return l, n.Line, refuse("rate", strictyaml.Describe(n), fmt.Sprintf("requests a second, above 0 and at most %d", int(front.MaxRate)))
		}
	}
	if n := f["under_way"]; n != nil {
		if l.UnderWay, line, err = f.number("under_way"); err == nil && (l.UnderWay < 1 || l.UnderWay > front.MaxUnderWay) {
			line, err = n.Line, refuse("under_way", l.UnderWay, fmt.Sprintf("1 to %d requests", front.MaxUnderWay))
		}
	}
	return l, line, err
}

// readSources reads one source, or a list of them.
func readSources(n *yaml.Node, field, path string, pathNode *yaml.Node, trusted int) (list []httpkey.Source, line int, err error) {
	nodes := []*yaml.Node{n}
	if n.Kind == yaml.SequenceNode {
		nodes = n.Content
	}
	if len(nodes) == 0 || len(nodes) > httpkey.MaxSources {
		return nil, n.Line, refuse(field, strictyaml.Describe(n), fmt.Sprintf("1 to %d sources", httpkey.MaxSources))
	}
	for _, n := range nodes {
		s, line, err := readSource(n, field, path, pathNode, trusted)
		if err != nil {
			return nil, line, err
		}
		if _, err := httpkey.New(s); err != nil {
			return nil, n.Line, err
		}
		list = append(list, s)
	}
	return list, 0, nil
}

func readSource(n *yaml.Node, what, path string, pathNode *yaml.Node, trusted int) (s httpkey.Source, line int, err error) {
	if n.Kind == yaml.ScalarNode && n.Value == clientAddress {
		return httpkey.ClientAddress(trusted), 0, nil
	}
	wanted := "one of header, cookie, query, wildcard, segment with a value, as in \"header: X-User\", or " + clientAddress
	if n.Kind != yaml.MappingNode {
		return s, n.Line, refuse(what, strictyaml.Describe(n), wanted)
	}
	f, line, err := mapping(n, what, sourceFields)
	if err != nil {
		return s, line, err
	}
	if len(f) != 1 {
		return s, n.Line, refuse(what, fmt.Sprintf("%d fields", len(f)), wanted)
	}
	var name string
	for _, field := range sourceFields {
		if f[field] == nil {
			continue
		}
		if field == "segment" {
			i, line, err := f.number(field)
			return httpkey.Segment(i), line, err
		}
		if name, line, err = f.text(field); err != nil {
			return s, line, err
		}
		switch field {
		case "header":
			return httpkey.Header(name), 0, nil
		case "cookie":
			return httpkey.Cookie(name), 0, nil
		case "query":
			return httpkey.Query(name), 0, nil
		}
	}
	if pathNode == nil {
		return s, n.Line, refuse("wildcard", name, "a path in the rule that has it, as in \"path: /users/{id}/\"")
	}
	p, err := httpkey.ParsePattern(path)
	if err != nil {
		return s, pathNode.Line, err
	}
	return httpkey.Wildcard(p, name), 0, nil
}
