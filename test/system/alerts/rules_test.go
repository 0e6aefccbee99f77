package alerts

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"regexp"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
	"go.yaml.in/yaml/v3"
)

// rule is an alert of deploy/alerts.yaml, as it stands there.
type rule struct {
	Alert, Expr, For string

	wait   time.Duration
	window time.Duration // the longest range in the expression, 0 if it has none

	since  int64 // in the rules' time, when the expression became true; 0 while it is not
	trueAt time.Time
	firing bool
}

func readRules(t *testing.T, path string) []*rule {
	t.Helper()
	var file struct{ Groups []struct{ Rules []*rule } }
	data, err := os.ReadFile(path)
	if err == nil {
		err = yaml.Unmarshal(data, &file)
	}
	if err != nil {
		t.Fatal(err)
	}
	var all []*rule
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			if r.For != "" {
				r.wait = duration(t, r.For)
			}
			for _, m := range regexp.MustCompile(`\[(\w+)\]`).FindAllStringSubmatch(r.Expr, -1) {
				r.window = max(r.window, duration(t, m[1]))
			}
			all = append(all, r)
		}
	}
	return all
}

func duration(t *testing.T, s string) time.Duration {
	t.Helper()
	d, err := model.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(d)
}

// prometheus scrapes targets and evaluates rules, by a clock of its own that runs faster
// than the real one, so that what a rule waits for need not be waited for.
type prometheus struct {
	t      *testing.T
	rules  []*rule
	engine *promql.Engine
	series map[string]*series

	speed     float64
	from      time.Time // when the speed was set
	fromRules int64     // what the rules' clock showed then, in Unix milliseconds

	mu      sync.Mutex
	targets map[string]string // URLs, by instance
}

// series is one time series, of the last hours of the rules' time.
type series struct {
	labels  labels.Labels
	target  string
	samples []chunks.Sample
	seen    int64 // when it was last scraped
	stale   bool
}

type sample struct {
	t int64
	f float64
}

func (s sample) ST() int64                     { return 0 }
func (s sample) T() int64                      { return s.t }
func (s sample) F() float64                    { return s.f }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }

// tickEvery is how often targets are scraped and rules evaluated, in real time.
const tickEvery = 400 * time.Millisecond

func newPrometheus(t *testing.T, rules []*rule) *prometheus {
	return &prometheus{
		t: t, rules: rules, series: map[string]*series{}, targets: map[string]string{},
		engine: promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute, Parser: parser.NewParser(parser.Options{})}),
		speed:  1, from: time.Now(), fromRules: 1_800_000_000_000,
	}
}

// now is the rules' time.
func (p *prometheus) now() int64 {
	return p.fromRules + int64(float64(time.Since(p.from).Milliseconds())*p.speed)
}

// run sets how many times as fast as the real clock the rules' clock runs.
func (p *prometheus) run(speed float64) {
	p.fromRules, p.from, p.speed = p.now(), time.Now(), speed
}

// tick scrapes all targets once and evaluates all rules.
func (p *prometheus) tick() {
	p.t.Helper()
	began, at := time.Now(), p.now()
	type answer struct {
		instance string
		families map[string]*dto.MetricFamily
	}
	answers := make(chan answer, len(p.targets))
	for instance, url := range p.targets {
		go func() { answers <- answer{instance, scrape(url)} }()
	}
	for range p.targets {
		a := <-answers
		p.take(at, a.instance, a.families)
	}
	for _, s := range p.series {
		if s.seen != at && !s.stale { // as Prometheus does when a series or its target is gone
			s.stale = true
			s.samples = append(s.samples, sample{at, math.Float64frombits(value.StaleNaN)})
		}
	}
	for _, r := range p.rules {
		p.eval(r, at)
	}
	time.Sleep(max(0, tickEvery-time.Since(began)))
}

// scrape returns nothing if the target does not answer.
func scrape(url string) map[string]*dto.MetricFamily {
	client := http.Client{Timeout: 2 * time.Second}
	resp, err := client.Get(url)
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return nil
	}
	parse := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parse.TextToMetricFamilies(strings.NewReader(string(text)))
	if err != nil {
		return nil
	}
	return families
}

// take adds gauges and counters of this project; the alerts go by no others.
func (p *prometheus) take(at int64, instance string, families map[string]*dto.MetricFamily) {
	for name, f := range families {
		if !strings.HasPrefix(name, "slicer_") {
			continue
		}
		for _, m := range f.Metric {
			var v float64
			switch {
			case m.Gauge != nil:
				v = m.GetGauge().GetValue()
			case m.Counter != nil:
				v = m.GetCounter().GetValue()
			default:
				continue
			}
			set := map[string]string{labels.MetricName: name, "instance": instance, "job": "slicer"}
			for _, l := range m.Label {
				set[l.GetName()] = l.GetValue() // honor_labels: true
			}
			ls := labels.FromMap(set)
			s := p.series[ls.String()]
			if s == nil {
				s = &series{labels: ls, target: instance}
				p.series[ls.String()] = s
			}
			s.samples, s.seen, s.stale = append(s.samples, sample{at, v}), at, false
		}
	}
}

func (p *prometheus) eval(r *rule, at int64) {
	p.t.Helper()
	q, err := p.engine.NewInstantQuery(context.Background(), p, nil, r.Expr, time.UnixMilli(at))
	if err != nil {
		p.t.Fatalf("%s: %v", r.Alert, err)
	}
	defer q.Close()
	result := q.Exec(context.Background())
	if result.Err != nil {
		p.t.Fatalf("%s: %v", r.Alert, result.Err)
	}
	vector, err := result.Vector()
	if err != nil {
		p.t.Fatalf("%s: %v", r.Alert, err)
	}
	switch {
	case len(vector) == 0:
		r.since, r.firing = 0, false
	case r.since == 0:
		r.since, r.trueAt = at, time.Now()
		fallthrough
	default:
		r.firing = time.Duration(at-r.since)*time.Millisecond >= r.wait
	}
}

// firing names the alerts that fire.
func (p *prometheus) firing() (all []string) {
	for _, r := range p.rules {
		if r.firing {
			all = append(all, r.Alert)
		}
	}
	return all
}

func (p *prometheus) rule(alert string) *rule {
	i := slices.IndexFunc(p.rules, func(r *rule) bool { return r.Alert == alert })
	if i < 0 {
		p.t.Fatalf("there is no alert %s", alert)
	}
	return p.rules[i]
}

// Querier implements storage.Queryable.
func (p *prometheus) Querier(mint, maxt int64) (storage.Querier, error) {
	return &querier{p, mint, maxt}, nil
}

type querier struct {
	p          *prometheus
	mint, maxt int64
}

func (q *querier) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	set := &seriesSet{at: -1}
	for _, s := range q.p.series {
		if slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(s.labels.Get(m.Name)) }) {
			continue
		}
		from := sort.Search(len(s.samples), func(i int) bool { return s.samples[i].T() >= q.mint })
		to := sort.Search(len(s.samples), func(i int) bool { return s.samples[i].T() > q.maxt })
		set.all = append(set.all, storage.NewListSeries(s.labels, s.samples[from:to]))
	}
	slices.SortFunc(set.all, func(a, b storage.Series) int { return labels.Compare(a.Labels(), b.Labels()) })
	return set
}

func (q *querier) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, fmt.Errorf("no rule asks for label values")
}

func (q *querier) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, fmt.Errorf("no rule asks for label names")
}

func (q *querier) Close() error { return nil }

type seriesSet struct {
	all []storage.Series
	at  int
}

func (s *seriesSet) Next() bool                        { s.at++; return s.at < len(s.all) }
func (s *seriesSet) At() storage.Series                { return s.all[s.at] }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }
