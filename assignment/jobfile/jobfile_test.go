package jobfile_test

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	_ "github.com/slicer-project/slicer/assignment/seedtest" // rapid's seed
	"pgregory.net/rapid"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/jobfile"
)

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		name, in string
		want     []assignment.JobConfig
	}{
		{"the least", "name: cache\n", []assignment.JobConfig{{Name: "cache"}}},
		{"flow", `{"name": "cache", "balance": {"interval": "1s"}}`, []assignment.JobConfig{{Name: "cache", Balance: assignment.BalanceConfig{Interval: time.Second}}}},
		{"several", "---\nname: a\n---\n---\nname: b\nmode: consistent\n---\n# nothing\n", []assignment.JobConfig{{Name: "a"}, {Name: "b", Mode: assignment.Consistent}}},
		{"text that looks like something else", "name: 123\nzone: true\nstore: 1.5\n", []assignment.JobConfig{{Name: "123", Zone: "true", Store: "1.5"}}},
		{"none of a share", "name: a\nbalance: {merge_budget: 0, move_budget: 0.0, cpu_threshold: 0}\n",
			[]assignment.JobConfig{{Name: "a", Balance: assignment.BalanceConfig{MergeBudget: -1, MoveBudget: -1, CPUThreshold: -1}}}},
		{"no zone", "name: a\nzone: \"\"\n", []assignment.JobConfig{{Name: "a"}}},
		{"empty balance", "name: a\nbalance: {}\n", []assignment.JobConfig{{Name: "a"}}},
		{"numbers", "name: a\nbalance: {move_budget: 1, band_start: 2, smoothing: 1e-1, band_stop: +1.5}\n",
			[]assignment.JobConfig{{Name: "a", Balance: assignment.BalanceConfig{MoveBudget: 1, BandStart: 2, Smoothing: .1, BandStop: 1.5}}}},
		{"an anchor that is not used", "name: &n a\n", []assignment.JobConfig{{Name: "a"}}},
		{"byte order mark and carriage returns", "\ufeffname: a\r\nmode: affinity\r\n", []assignment.JobConfig{{Name: "a"}}},
	} {
		got, err := jobfile.Parse("jobs.yaml", []byte(tc.in))
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		for i := range tc.want {
			tc.want[i] = tc.want[i].WithDefaults()
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: %s", tc.name, diff)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"empty", "", "jobs.yaml: there is no job config in it"},
		{"comment", "# name: a\n---\n", "jobs.yaml: there is no job config in it"},
		{"too large", "name: a\n#" + strings.Repeat("x", jobfile.MaxSize), "jobs.yaml: 1048585 bytes, at most 1048576 are allowed"},
		{"not YAML", "name: a\n\tmode: b\n", "jobs.yaml:2: not YAML: found a tab character"},
		{"not YAML, later", "name: a\n---\nname: b\nmode: [\n", "jobs.yaml:4: not YAML: did not find expected node content"},
		{"not text", "name: \xff\xfe\n", "jobs.yaml: not YAML: invalid leading UTF-8 octet"},
		{"list", "- name: a\n", `jobs.yaml:1: job config: "a list of 1" is not allowed: want fields`},
		{"scalar", "cache\n", `jobs.yaml:1: job config: "cache" is not allowed: want fields`},
		{"no name", "\nmode: affinity\n", `jobs.yaml:2: name: "missing" is not allowed`},
		{"null name", "name:\n", `jobs.yaml:1: name: "" is not allowed: want a value`},
		{"tilde name", "name: ~\n", `jobs.yaml:1: name: "~" is not allowed: want a value`},
		{"slash", "mode: affinity\nname: a/b\n", `jobs.yaml:2: job name: "a/b" is not allowed: want an RFC 1123 label`},
		{"empty name", "name: ''\n", `jobs.yaml:1: job name: ""`},
		{"unknown field", "name: a\nmin_replica: 3\n", `jobs.yaml:2: field of job config: "min_replica" is not allowed: want name, min_replicas, max_replicas, mode, load_metric, zone, store, heartbeat_timeout, lease_duration, warm_up, history, max_tasks, target_utilization, balance, damping, freeze, overload, xds, limits, access`},
		{"admission", "name: a\noverload:\n  admission: yes\n", `jobs.yaml:3: overload.admission: "yes" is not allowed: want off, report or on`},
		{"attempts", "name: a\noverload:\n  retry_attempts: 5\n", `jobs.yaml:3: overload.retry_attempts: 5 is not allowed: want 1 to 4`},
		{"budget", "name: a\noverload:\n  retry_budget: 1.5\n", `jobs.yaml:3: overload.retry_budget: 1.5 is not allowed: want 0 to 1, a share of the requests`},
		{"missing", "name: a\nxds:\n  missing: owner\n", `jobs.yaml:3: xds.missing: "owner" is not allowed: want any or refuse`},
		{"xDS retries", "name: a\nxds:\n  retries: 5\n", `jobs.yaml:3: xds.retries: 5 is not allowed: want 0 to 4`},
		{"xDS retries below 0", "name: a\nxds:\n  retries: -1\n", `jobs.yaml:3: xds.retries: "-1" is not allowed: want 0 or more`},
		{"xDS backoff", "name: a\nxds:\n  retry_backoff: 2s\n", `jobs.yaml:3: xds.retry_backoff: 2s is not allowed: want 1ms to 1s, in whole milliseconds`},
		{"criticality", "name: a\noverload:\n  default_criticality: high\n", `jobs.yaml:3: overload.default_criticality: "high" is not allowed: want critical_plus, critical, sheddable_plus or sheddable`},
		{"limit", "name: a\nlimits:\n  customers:\n    b: {rate: 0}\n", `jobs.yaml:4: limits.customers.b.rate: "0" is not allowed: want above 0, to 1e+12 units of load a second`},
		{"limit's field", "name: a\nlimits:\n  default: {cpu: 3}\n", `jobs.yaml:3: field of limits.default: "cpu" is not allowed: want rate, max_criticality`},
		{"limit's criticality", "name: a\nlimits:\n  customers:\n    a.b:\n      max_criticality: high\n", `jobs.yaml:5: limits.customers.a.b.max_criticality: "high" is not allowed: want critical_plus`},
		{"limits of nothing", "name: a\nlimits: []\n", `jobs.yaml:2: limits: "a list of 0" is not allowed: want fields`},
		{"customers of nothing", "name: a\nlimits:\n  customers: 3\n", `jobs.yaml:3: limits.customers: "3" is not allowed: want customers and their limits`},
		{"customer twice", "name: a\nlimits:\n  customers:\n    b: {}\n    b: {rate: 1}\n", `jobs.yaml:5: customer in limits: "b" is not allowed: want each customer once`},
		{"customer's name", "name: a\nlimits:\n  customers:\n    'b c': {rate: 1}\n", `jobs.yaml:3: customer in limits: "b c" is not allowed: want 1 to 128 printable`},
		{"unknown field of balance", "name: a\nbalance:\n  interval: 1s\n  intervall: 2s\n", `jobs.yaml:4: field of balance: "intervall" is not allowed: want min_slices_per_task, max_slices_per_task,`},
		{"another algorithm", "name: a\nbalance:\n  algorithm: published\n", `jobs.yaml:3: field of balance: "algorithm" is not allowed: want min_slices_per_task,`},
		{"field of balance outside of it", "name: a\ninterval: 1s\n", `jobs.yaml:2: field of job config: "interval"`},
		{"dotted", "name: a\nbalance.interval: 1s\n", `jobs.yaml:2: field of job config: "balance.interval"`},
		{"twice", "name: a\nmode: affinity\nname: b\n", `jobs.yaml:3: field: "name" is not allowed: want each field once; it is in line 1 already`},
		{"twice in balance", "name: a\nbalance:\n  interval: 1s\n  interval: 2s\n", `jobs.yaml:4: field: "balance.interval"`},
		{"balance twice", "name: a\nbalance: {}\nbalance: {}\n", `jobs.yaml:3: field: "balance"`},
		{"same job twice", "name: a\n---\nname: a\n", `jobs.yaml:3: name: "a" is not allowed: want another name than in line 1`},
		{"balance null", "name: a\nbalance:\n", `jobs.yaml:2: balance: "" is not allowed: want fields`},
		{"balance list", "name: a\nbalance: [1]\n", `jobs.yaml:2: balance: "a list of 1"`},
		{"min above max", "name: a\nmax_replicas: 2\nmin_replicas: 3\n", `jobs.yaml:3: min_replicas: 3 is not allowed: want at most max_replicas, which is 2`},
		{"0 is not left out", "name: a\nmin_replicas: 0\n", `jobs.yaml:2: min_replicas: 0 is not allowed: want 1 to 1024`},
		{"0s is not left out", "name: a\nbalance:\n  interval: 0s\n", `jobs.yaml:3: balance.interval: 0s is not allowed: want 100ms to 1h`},
		{"nothing is not left out", "name: a\nload_metric: ''\n", `jobs.yaml:2: load_metric: "" is not allowed: want requests, cpu or custom`},
		{"no number", "name: a\nmax_replicas: many\n", `jobs.yaml:2: max_replicas: "many" is not allowed: want a whole number`},
		{"fraction", "name: a\nmax_replicas: 1.5\n", `jobs.yaml:2: max_replicas: "1.5" is not allowed: want a whole number`},
		{"text of digits", "name: a\nmax_replicas: '3'\n", `jobs.yaml:2: max_replicas: "3" is not allowed: want a whole number`},
		{"hexadecimal", "name: a\nmax_replicas: 0x10\n", `jobs.yaml:2: max_replicas: "0x10"`},
		{"large", "name: a\nmax_replicas: 99999999999999999999\n", `jobs.yaml:2: max_replicas: "99999999999999999999"`},
		{"list for a number", "name: a\nmax_replicas: [1]\n", `jobs.yaml:2: max_replicas: "a list of 1" is not allowed: want a value`},
		{"mapping for text", "name: {a: b}\n", `jobs.yaml:1: name: "a mapping" is not allowed: want a value`},
		{"NaN", "name: a\nbalance: {move_budget: .nan}\n", `jobs.yaml:2: balance.move_budget: ".nan" is not allowed: want a number`},
		{"infinite", "name: a\nbalance: {band_start: .inf}\n", `jobs.yaml:2: balance.band_start: ".inf" is not allowed: want a number`},
		{"negative share", "name: a\nbalance: {move_budget: -1}\n", `jobs.yaml:2: balance.move_budget: "-1" is not allowed: want 0 to 1`},
		{"share", "name: a\nbalance: {move_budget: 9}\n", `jobs.yaml:2: balance.move_budget: 9 is not allowed: want 0 to 1, a share of the keyspace`},
		{"duration", "name: a\nheartbeat_timeout: 5\n", `jobs.yaml:2: heartbeat_timeout: "5" is not allowed: want a duration, such as 5s`},
		{"short", "name: a\nheartbeat_timeout: 5ms\n", `jobs.yaml:2: heartbeat_timeout: 5ms is not allowed: want 500ms to 10m`},
		{"mode", "name: a\nmode: strict\n", `jobs.yaml:2: mode: "strict" is not allowed: want affinity or consistent`},
		{"consistent replicas", "mode: consistent\nmax_replicas: 2\nname: a\n", `jobs.yaml:2: max_replicas: 2 is not allowed: want 1 in consistent mode`},
		{"alias", "name: &a a\nzone: *a\n", `jobs.yaml:2: zone: "*a" is not allowed: want a value`},
		{"alias for a key", "name: &zone a\n*zone : b\n", `jobs.yaml:2: field of job config: "*zone"`},
		{"alias of nothing", "name: *a\n", "jobs.yaml: not YAML: unknown anchor 'a' referenced"},
		{"merge", "name: a\nbalance: &b {interval: 1s}\n<<: *b\n", `jobs.yaml:3: field of job config: "<<"`},
		{"list for a key", "name: a\n? [x]\n: b\n", `jobs.yaml:2: field of job config: "a list of 1"`},
	} {
		got, err := jobfile.Parse("jobs.yaml", []byte(tc.in))
		var where *jobfile.Error
		if got != nil || err == nil || !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("%s: %v, %v, want %s", tc.name, got, err, tc.want)
		} else if !errors.As(err, &where) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %q is not one line, or %T is no *Error", tc.name, err, err)
		}
	}
}

// A file of aliases on aliases, which stands for gigabytes, is refused without
// being multiplied out; so are towers of brackets.
func TestBombs(t *testing.T) {
	var bomb strings.Builder
	bomb.WriteString("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n")
	for i := range 20 {
		fmt.Fprintf(&bomb, "a%d: &a%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i), 10), ","))
	}
	for name, in := range map[string]string{
		"aliases":  bomb.String(),
		"brackets": "name: " + strings.Repeat("[", jobfile.MaxSize-10),
		"braces":   strings.Repeat("{a: ", jobfile.MaxSize/4-10),
		"dashes":   strings.Repeat("- ", jobfile.MaxSize/2-10),
		"keys":     strings.Repeat("? ", jobfile.MaxSize/2-10),
		"docs":     strings.Repeat("---\n", jobfile.MaxSize/4-10),
	} {
		if got, err := jobfile.Parse("bomb.yaml", []byte(in)); err == nil || len(err.Error()) > 500 {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestFormat(t *testing.T) {
	c := assignment.JobConfig{Name: "cache", HeartbeatTimeout: 10 * time.Minute, Balance: assignment.BalanceConfig{MoveBudget: -1, Interval: time.Hour}}.WithDefaults()
	const want = `name: cache
min_replicas: 1
max_replicas: 10
mode: affinity
load_metric: requests
heartbeat_timeout: 10m
lease_duration: 5s
warm_up: 30s
history: 100
max_tasks: 10000
target_utilization: 0.6
balance:
  min_slices_per_task: 50
  max_slices_per_task: 150
  merge_budget: 0.01
  move_budget: 0
  band_start: 1.03
  band_stop: 1.01
  smoothing: 0.25
  interval: 1h
  cpu_threshold: 0.25
damping:
  half_life: 1m
  suppress: 3
  reuse: 1.5
  most: 6
  share: 0.25
freeze:
  share: 0.5
  min_tasks: 4
  window: 20m
  for: 3m
overload:
  admission: "on"
  default_criticality: critical
  retry_attempts: 3
  retry_budget: 0.1
xds:
  missing: any
  retries: 4
  retry_backoff: 20ms
`
	if diff := cmp.Diff(want, string(jobfile.Format(c))); diff != "" {
		t.Error(diff)
	}
}

func TestFormatRoundTrip(t *testing.T) {
	token := rapid.OneOf(rapid.SampledFrom([]string{"", "null", "true", "~", "1", "1.5", "*a", "&a", "#", "a#b", "a:b", `"`, `\`, "'", "-", "?", "[", "{}", "!!int", "@", "%", "0x1f", ".inf"}), rapid.StringMatching(`[!-.0-~]{1,63}`))
	name := rapid.OneOf(rapid.SampledFrom([]string{"null", "true", "no", "1", "1e3", "0x1f", "0o7", "12-30"}), rapid.StringMatching(`[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?`))
	millis := func(lo, hi int) *rapid.Generator[time.Duration] {
		return rapid.Map(rapid.IntRange(lo, hi), func(ms int) time.Duration { return time.Duration(ms) * time.Millisecond })
	}
	share := rapid.OneOf(rapid.Just(-1.), rapid.Float64Range(1e-300, 1))
	limit := rapid.Custom(func(t *rapid.T) assignment.Limit {
		return assignment.Limit{Rate: rapid.OneOf(rapid.Just(0.), rapid.Float64Range(1e-9, 1e12)).Draw(t, "rate"), MaxCriticality: assignment.Criticality(rapid.IntRange(0, 4).Draw(t, "highest"))}
	})
	customer := rapid.OneOf(token.Filter(func(s string) bool { return s != "" }), rapid.SampledFrom([]string{"spiffe://corp/ns/a", "a.rate", "customers", "default"}))
	rapid.Check(t, func(t *rapid.T) {
		c := assignment.JobConfig{
			Name: name.Draw(t, "name"), Zone: token.Draw(t, "zone"), Store: token.Draw(t, "store"),
			MinReplicas: rapid.IntRange(1, 3).Draw(t, "min"), MaxReplicas: rapid.IntRange(3, 1024).Draw(t, "max"),
			LoadMetric: rapid.SampledFrom([]string{"requests", "cpu", "custom"}).Draw(t, "metric"), Mode: assignment.Affinity,
			HeartbeatTimeout: millis(500, 600_000).Draw(t, "heartbeat"), LeaseDuration: millis(1000, 600_000).Draw(t, "lease"),
			Balance: assignment.BalanceConfig{
				MinSlicesPerTask: rapid.IntRange(1, 50).Draw(t, "least"), MaxSlicesPerTask: rapid.IntRange(50, 1000).Draw(t, "most"),
				MergeBudget: share.Draw(t, "merge"), MoveBudget: share.Draw(t, "move"), BandStart: rapid.Float64Range(2, 100).Draw(t, "start"),
				BandStop: rapid.Float64Range(1, 2).Draw(t, "stop"), Smoothing: rapid.Float64Range(1e-9, 1).Draw(t, "smoothing"),
				Interval: millis(100, 3_600_000).Draw(t, "interval"), CPUThreshold: share.Draw(t, "cpu"),
			},
			WarmUp:  rapid.OneOf(rapid.Just(assignment.NoWarmUp), millis(1, 3_600_000)).Draw(t, "warm up"),
			History: rapid.IntRange(1, 1000).Draw(t, "history"), TargetUtilization: rapid.Float64Range(.05, 1).Draw(t, "target"),
			Damping: assignment.DampingConfig{
				HalfLife: millis(1000, 86_400_000).Draw(t, "half life"), Suppress: rapid.Float64Range(3, 500).Draw(t, "suppress"),
				Reuse: rapid.Float64Range(1e-9, 2).Draw(t, "reuse"), Most: rapid.Float64Range(500, 1000).Draw(t, "penalty"), Share: share.Draw(t, "damped"),
			},
			Overload: assignment.OverloadConfig{Admission: assignment.Admission(rapid.IntRange(1, 3).Draw(t, "admission")), DefaultCriticality: assignment.Criticality(rapid.IntRange(1, 4).Draw(t, "criticality")),
				RetryAttempts: rapid.IntRange(1, assignment.MaxRetryAttempts).Draw(t, "attempts"), RetryBudget: share.Draw(t, "retries")},
			XDS: assignment.XDSConfig{
				Missing: rapid.SampledFrom([]assignment.Missing{assignment.MissingAny, assignment.MissingRefuse}).Draw(t, "missing"),
				Retries: rapid.SampledFrom([]int{assignment.NoXDSRetries, 1, assignment.MaxXDSRetries}).Draw(t, "xds retries"), RetryBackoff: millis(1, 1000).Draw(t, "backoff"),
			},
			Freeze: assignment.FreezeConfig{
				Share: rapid.Float64Range(1e-9, 1).Draw(t, "vanished"), MinTasks: rapid.IntRange(1, assignment.MaxTasks).Draw(t, "least"),
				Window: millis(500, 3_600_000).Draw(t, "window"), For: millis(1000, 86_400_000).Draw(t, "frozen"),
			},
		}
		var err error
		if c.Limits, err = assignment.LimitsOf(limit.Draw(t, "others"), rapid.MapOfN(customer, limit, 0, 4).Draw(t, "customers")); err != nil {
			t.Fatal(err)
		}
		c.MaxTasks = rapid.IntRange(1, assignment.MaxTasks).Draw(t, "tasks")
		patterns := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"**", "spiffe://corp/*/x", "a.b", "{job}.corp", "spiffe://corp/'\"#/**"}), 0, 3, rapid.ID[string])
		given := map[assignment.Verb][]string{assignment.Own: patterns.Draw(t, "own"), assignment.Order: patterns.Draw(t, "order")}
		if len(given[assignment.Own])+len(given[assignment.Order]) > 0 {
			if c.Access, err = assignment.AccessOf(given); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Validate(); err != nil {
			t.Fatal(err)
		}
		text := jobfile.Format(c)
		got, err := jobfile.Parse("-", text)
		if err != nil || len(got) != 1 || got[0] != c {
			t.Fatalf("%v\n%s\n%s", err, text, cmp.Diff([]assignment.JobConfig{c}, got))
		}
		if changes := jobfile.Changes(c, got[0]); changes != nil {
			t.Error(changes)
		}
	})
}

// The package's documentation shows a file: every field of the config, and the defaults.
func TestDocumentedFile(t *testing.T) {
	source, err := os.ReadFile("jobfile.go")
	if err != nil {
		t.Fatal(err)
	}
	var example strings.Builder
	for _, m := range regexp.MustCompile(`(?m)^//\t(.*)$`).FindAllSubmatch(source, -1) {
		example.Write(append(m[1], '\n'))
	}
	got, err := jobfile.Parse("doc", []byte(example.String()))
	if err != nil {
		t.Fatalf("%v\n%s", err, example.String())
	}
	want := []assignment.JobConfig{{Name: "cache", Zone: "eu-1", Store: "main"}, {Name: "search", Mode: assignment.Consistent}}
	want[0].Limits, err = assignment.LimitsOf(assignment.Limit{Rate: 5}, map[string]assignment.Limit{"mail": {Rate: 40}, "batch": {Rate: 20, MaxCriticality: assignment.SheddablePlus}})
	if err != nil {
		t.Fatal(err)
	}
	want[0].Access, err = assignment.AccessOf(map[assignment.Verb][]string{
		assignment.Own: {"spiffe://corp/ns/cache/task/{task}"}, assignment.Watch: {"spiffe://corp/**"}, assignment.Configure: {"spiffe://corp/ns/cache/deployer"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range want {
		want[i] = want[i].WithDefaults()
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for field, value := range reflect.ValueOf(got[0]).Fields() {
		if value.IsZero() {
			t.Errorf("the example lacks %s", field.Name)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("name: cache\nmin_replicas: 1\nbalance:\n  interval: 5s\n  move_budget: 0\n---\nname: b\nmode: consistent\n"))
	f.Add([]byte(`{name: "a", zone: 'b', store: &x c, balance: {smoothing: .5, band_start: 1e1}}`))
	f.Add([]byte("a: &a [*a]\n<<: *a\n? [x]\n: |\n  text\n"))
	f.Add(jobfile.Format(assignment.JobConfig{Name: "cache", Zone: "#"}.WithDefaults()))
	f.Fuzz(func(t *testing.T, data []byte) {
		configs, err := jobfile.Parse("f", data)
		var where *jobfile.Error
		if err != nil {
			if !errors.As(err, &where) || configs != nil {
				t.Fatalf("%v, %T", configs, err)
			}
			return
		}
		for _, c := range configs {
			if err := c.Validate(); err != nil {
				t.Fatal(err)
			}
			again, err := jobfile.Parse("f", jobfile.Format(c))
			if err != nil || len(again) != 1 || again[0] != c {
				t.Fatalf("%v: %+v\n%s", err, c, jobfile.Format(c))
			}
		}
	})
}
