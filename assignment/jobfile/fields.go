package jobfile

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/access"
	"github.com/slicer-project/slicer/assignment/strictyaml"
)

// field is one of a config's, by the name that assignment.JobConfig.Validate
// uses for it.
type field struct {
	name string
	at   func(c *assignment.JobConfig) any // points to the value
	// orNone marks what may be 0, for which the config says 0 by -1 (ms), as 0 is "not given".
	orNone bool
}

// fields are in the order in which they are printed.
var fields = []field{
	{name: "name", at: func(c *assignment.JobConfig) any { return &c.Name }},
	{name: "min_replicas", at: func(c *assignment.JobConfig) any { return &c.MinReplicas }},
	{name: "max_replicas", at: func(c *assignment.JobConfig) any { return &c.MaxReplicas }},
	{name: "mode", at: func(c *assignment.JobConfig) any { return &c.Mode }},
	{name: "load_metric", at: func(c *assignment.JobConfig) any { return &c.LoadMetric }},
	{name: "zone", at: func(c *assignment.JobConfig) any { return &c.Zone }},
	{name: "store", at: func(c *assignment.JobConfig) any { return &c.Store }},
	{name: "heartbeat_timeout", at: func(c *assignment.JobConfig) any { return &c.HeartbeatTimeout }},
	{name: "lease_duration", at: func(c *assignment.JobConfig) any { return &c.LeaseDuration }},
	{name: "warm_up", at: func(c *assignment.JobConfig) any { return &c.WarmUp }, orNone: true},
	{name: "history", at: func(c *assignment.JobConfig) any { return &c.History }},
	{name: "max_tasks", at: func(c *assignment.JobConfig) any { return &c.MaxTasks }},
	{name: "target_utilization", at: func(c *assignment.JobConfig) any { return &c.TargetUtilization }},
	{name: "balance.min_slices_per_task", at: func(c *assignment.JobConfig) any { return &c.Balance.MinSlicesPerTask }},
	{name: "balance.max_slices_per_task", at: func(c *assignment.JobConfig) any { return &c.Balance.MaxSlicesPerTask }},
	{name: "balance.merge_budget", at: func(c *assignment.JobConfig) any { return &c.Balance.MergeBudget }, orNone: true},
	{name: "balance.move_budget", at: func(c *assignment.JobConfig) any { return &c.Balance.MoveBudget }, orNone: true},
	{name: "balance.band_start", at: func(c *assignment.JobConfig) any { return &c.Balance.BandStart }},
	{name: "balance.band_stop", at: func(c *assignment.JobConfig) any { return &c.Balance.BandStop }},
	{name: "balance.smoothing", at: func(c *assignment.JobConfig) any { return &c.Balance.Smoothing }},
	{name: "balance.interval", at: func(c *assignment.JobConfig) any { return &c.Balance.Interval }},
	{name: "balance.cpu_threshold", at: func(c *assignment.JobConfig) any { return &c.Balance.CPUThreshold }, orNone: true},
	{name: "damping.half_life", at: func(c *assignment.JobConfig) any { return &c.Damping.HalfLife }},
	{name: "damping.suppress", at: func(c *assignment.JobConfig) any { return &c.Damping.Suppress }},
	{name: "damping.reuse", at: func(c *assignment.JobConfig) any { return &c.Damping.Reuse }},
	{name: "damping.most", at: func(c *assignment.JobConfig) any { return &c.Damping.Most }},
	{name: "damping.share", at: func(c *assignment.JobConfig) any { return &c.Damping.Share }, orNone: true},
	{name: "freeze.share", at: func(c *assignment.JobConfig) any { return &c.Freeze.Share }},
	{name: "freeze.min_tasks", at: func(c *assignment.JobConfig) any { return &c.Freeze.MinTasks }},
	{name: "freeze.window", at: func(c *assignment.JobConfig) any { return &c.Freeze.Window }},
	{name: "freeze.for", at: func(c *assignment.JobConfig) any { return &c.Freeze.For }},
	{name: "overload.admission", at: func(c *assignment.JobConfig) any { return &c.Overload.Admission }},
	{name: "overload.default_criticality", at: func(c *assignment.JobConfig) any { return &c.Overload.DefaultCriticality }},
	{name: "overload.retry_attempts", at: func(c *assignment.JobConfig) any { return &c.Overload.RetryAttempts }},
	{name: "overload.retry_budget", at: func(c *assignment.JobConfig) any { return &c.Overload.RetryBudget }, orNone: true},
	{name: "xds.missing", at: func(c *assignment.JobConfig) any { return &c.XDS.Missing }},
	{name: "xds.retries", at: func(c *assignment.JobConfig) any { return &c.XDS.Retries }, orNone: true},
	{name: "xds.retry_backoff", at: func(c *assignment.JobConfig) any { return &c.XDS.RetryBackoff }},
}

// groups are the prefixes of fields that stand in a mapping of their own.
var groups = []string{"balance.", "damping.", "freeze.", "overload.", "xds."}

func isGroup(prefix string) bool { return slices.Contains(groups, prefix) }

// given is a field with the value that a file gives it.
type given struct {
	field
	value *yaml.Node
}

// config reads one job. The line is that of the error, or of the name.
func config(root *yaml.Node) (c assignment.JobConfig, line int, err error) {
	values, line, err := collect(root, "", nil)
	if err != nil {
		return c, line, err
	}
	if i := slices.IndexFunc(values, func(g given) bool { return g.name == limitsField }); i >= 0 {
		if c.Limits, line, err = readLimits(values[i].value); err != nil {
			return c, line, err
		}
		values = slices.Delete(values, i, i+1)
	}
	if i := slices.IndexFunc(values, func(g given) bool { return g.name == accessField }); i >= 0 {
		if c.Access, line, err = access.ReadAccess(values[i].value, accessField); err != nil {
			return c, line, err
		}
		values = slices.Delete(values, i, i+1)
	}
	set := func() error {
		for _, g := range values {
			if err := g.set(&c, g.value); err != nil {
				line = g.value.Line
				return err
			}
		}
		return nil
	}
	if err := set(); err != nil {
		return c, line, err
	}
	// Defaults depend on what is given, but what is given stays, even if it is 0.
	c = c.WithDefaults()
	if err := set(); err != nil {
		return c, line, err
	}
	lines := make(map[string]int, len(values))
	for _, g := range values {
		lines[g.name] = g.value.Line
	}
	if lines["name"] == 0 {
		return c, root.Line, &assignment.FieldError{Field: "name", Value: "missing", Allowed: "the name of the job"}
	}
	line = lines["name"]
	if err = c.Validate(); err != nil {
		var wrong *assignment.FieldError
		if errors.As(err, &wrong) { // Validate speaks of the name as "job name"
			line = cmp.Or(lines[wrong.Field], line)
		}
	}
	return c, line, err
}

// collect goes through a mapping whose fields are called prefix and key.
func collect(m *yaml.Node, prefix string, values []given) (_ []given, line int, err error) {
	what := cmp.Or(strings.TrimSuffix(prefix, "."), "job config")
	fields, line, err := strictyaml.Mapping(m, what, prefix, names(prefix))
	if err != nil {
		return nil, line, err
	}
	for _, x := range fields {
		name := prefix + x.Name
		if isGroup(name + ".") {
			if values, line, err = collect(x.Value, name+".", values); err != nil {
				return nil, line, err
			}
			continue
		}
		f, ok := find(name)
		if !ok { // names says that there is one, or it is one of those
			f.name = name
		}
		values = append(values, given{f, x.Value})
	}
	return values, m.Line, nil
}

func find(name string) (field, bool) {
	for _, f := range fields {
		if f.name == name {
			return f, true
		}
	}
	return field{}, false
}

// names are those that may come after prefix.
func names(prefix string) (list []string) {
	for _, f := range fields {
		if name, ok := strings.CutPrefix(f.name, prefix); ok && !strings.Contains(name, ".") {
			list = append(list, name)
		}
	}
	if prefix == "" {
		for _, g := range groups {
			list = append(list, strings.TrimSuffix(g, "."))
		}
		list = append(list, limitsField, accessField)
	}
	return list
}

// set puts the value into the config. The range is for Validate to check.
func (f *field) set(c *assignment.JobConfig, value *yaml.Node) (err error) {
	text := value.Value
	refuse := func(allowed string) error {
		return &assignment.FieldError{Field: f.name, Value: strictyaml.Describe(value), Allowed: allowed}
	}
	if value.Kind != yaml.ScalarNode || value.Tag == "!!null" {
		return refuse("a value")
	}
	switch p := f.at(c).(type) {
	case *string:
		*p = text
	case *int:
		if *p, err = strconv.Atoi(text); err != nil || value.Tag != "!!int" {
			return refuse("a whole number")
		}
		if !orNone(f, p, -1) {
			return refuse("0 or more")
		}
	case *float64:
		if *p, err = strconv.ParseFloat(text, 64); err != nil || value.Tag != "!!int" && value.Tag != "!!float" {
			return refuse("a number")
		}
		if !orNone(f, p, -1) {
			return refuse("0 to 1")
		}
	case *time.Duration:
		if *p, err = time.ParseDuration(text); err != nil {
			return refuse("a duration, such as 5s or 500ms")
		}
		if !orNone(f, p, -time.Millisecond) {
			return refuse("0 or more")
		}
	case *assignment.Mode:
		*p, err = assignment.ParseMode(text)
	case *assignment.Admission:
		*p, err = assignment.ParseAdmission(text)
	case *assignment.Missing:
		*p, err = assignment.ParseMissing(text)
	case *assignment.Criticality:
		*p, err = assignment.ParseCriticality(text)
	}
	if wrong, ok := errors.AsType[*assignment.FieldError](err); ok {
		return refuse(wrong.Allowed)
	}
	return err
}

// number is what a field may be that has a default, for which 0 stands in a config, and may be
// none as well, for which something below 0 does. In a file 0 is none.
type number interface {
	int | float64 | time.Duration
}

// orNone makes none of a 0 that was read, if the field may be none. It reports whether what was
// read is allowed.
func orNone[T number](f *field, p *T, none T) bool {
	if f.orNone && *p == 0 {
		*p = none
		return true
	}
	return !f.orNone || !(*p < 0)
}

// shown is what a file has for a value: 0 for none.
func shown[T number](f *field, v T) T {
	if f.orNone {
		return max(v, 0)
	}
	return v
}
