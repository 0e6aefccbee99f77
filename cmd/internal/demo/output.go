package demo

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/slicer-project/slicer/assignment"
)

// tick is what one second was like. Its JSON form is part of the output.
type tick struct {
	Second      int    `json:"second"`
	AtMS        int64  `json:"at_ms"`
	Distributor string `json:"distributor"`    // for slicerctl --server
	Page        string `json:"page,omitempty"` // for a browser
	counts
	HitRate     float64    `json:"hit_rate"`
	Imbalance   float64    `json:"imbalance"`
	KeyChurn    float64    `json:"key_churn"` // in this second
	Generation  int64      `json:"generation"`
	Generations int        `json:"generations"` // since the load began
	Slices      int        `json:"slices"`
	Tasks       []tickTask `json:"tasks"`
	Events      []event    `json:"events"` // of this second
}

// tickTask is one task in that second. Load is what clients got answered by it.
type tickTask struct {
	Name   string  `json:"name"`
	State  string  `json:"state"`
	Load   float64 `json:"load"`
	Slices int     `json:"slices"`
	Share  float64 `json:"share"` // of the keyspace
}

// output shows a run. Calls are serial.
type output interface {
	begin(c *Config, at addresses)
	tick(t *tick) error
	end(s *Summary) error
}

// jsonOutput prints a line a second and a last one with the summary.
type jsonOutput struct{ w io.Writer }

func (o *jsonOutput) begin(*Config, addresses) {}

func (o *jsonOutput) tick(t *tick) error { return json.NewEncoder(o.w).Encode(t) }

func (o *jsonOutput) end(s *Summary) error {
	return json.NewEncoder(o.w).Encode(map[string]*Summary{"summary": s})
}

// plainOutput prints lines that fit a log.
type plainOutput struct {
	w    io.Writer
	page string
}

func (o *plainOutput) begin(c *Config, at addresses) {
	o.page = at.page
	fmt.Fprintln(o.w, headline(c))
	if at.page != "" {
		fmt.Fprintf(o.w, "see it: open %s in a browser\n", at.page)
	}
	fmt.Fprintf(o.w, "look inside: %s --server %s inspect %s   (backup distributor: %s)\n", command("slicerctl"), at.distributor, jobName, at.backup)
}

func (o *plainOutput) tick(t *tick) error {
	for _, e := range t.Events {
		fmt.Fprintln(o.w, e.line())
	}
	loads := make([]string, 0, len(t.Tasks))
	for _, k := range t.Tasks {
		l := fmt.Sprintf("%.0f", k.Load)
		if k.State != "running" {
			l += "(" + k.State + ")"
		}
		loads = append(loads, l)
	}
	_, err := fmt.Fprintf(o.w, "%6.1fs  %s  %s  tasks %s\n", float64(t.AtMS)/1000, t.calls(), t.shards(), strings.Join(loads, " "))
	return err
}

func (o *plainOutput) end(s *Summary) error {
	_, err := fmt.Fprint(o.w, s.text(), next(o.page))
	return err
}

// next says where the page was and what to do now.
func next(page string) string {
	var b strings.Builder
	b.WriteString("\n")
	if page != "" {
		fmt.Fprintf(&b, "The page at %s has ended with the demo: --duration 10m leaves more time to look at it.\n", page)
	}
	fmt.Fprintf(&b, "Next: %s serve runs a control plane that stays, with its page at http://localhost:4721/;\n"+
		"README.md, \"Run it\", shards two servers on it, and deploy/docs/FIRST_HOUR.md a service of your own.\n", command("slicer"))
	return b.String()
}

func headline(c *Config) string {
	load := fmt.Sprintf("%d calls/s of Zipf keys", c.QPS)
	if c.Trace != "" {
		load = "the load of " + c.Trace
	}
	mode := ""
	if c.Consistent {
		mode = ", consistent mode"
	}
	if c.Overload {
		mode = ", overload"
	}
	return fmt.Sprintf("%d cache servers, %d clients, %s, %s%s", c.Tasks, c.Clients, load, c.Duration, mode)
}

// calls and shards sum up a second as clients and as the control plane saw it.
func (t *tick) calls() string {
	return fmt.Sprintf("%d calls  %d errors  %d misrouted  %.1f%% hits  imbalance %.2f", t.Requests, t.Errors, t.Misrouted, 100*t.HitRate, t.Imbalance)
}

func (t *tick) shards() string {
	return fmt.Sprintf("%.2f%% of keys moved  generation %d (+%d)  %d slices", 100*t.KeyChurn, t.Generation, t.Generations, t.Slices)
}

func (e event) line() string {
	what := map[string]string{
		evShift: "hot keys shift", evKill: "killed", evReassigned: "reassigned", evDrain: "draining",
		evFlood: "flood", evCalm: "calm", evDrained: "drained", evAdd: "added", evJoined: "joined", evTrouble: "TROUBLE",
	}[e.Kind]
	s := fmt.Sprintf("%6.1fs  ** %s", float64(e.AtMS)/1000, what)
	if e.Task != "" {
		s += " " + e.Task
	}
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}

// text is the summary for people.
func (s *Summary) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%d calls, %d errors: availability %.5f (%d misrouted, %d retried, %d lost by the drain)\n",
		s.Requests, s.Errors, s.Availability, s.Misrouted, s.Retried, s.DrainErrors)
	fmt.Fprintf(&b, "imbalance %.2f at first, %.2f at the end; %d generations, %.2f%% of keys moved in each on average\n",
		s.ImbalanceFirst, s.ImbalanceLast, s.Generations, 100*s.KeyChurnPerRound)
	fmt.Fprintf(&b, "a lookup took %d ns (median) and %d ns (99th percentile); %.1f%% cache hits\n", s.LookupP50NS, s.LookupP99NS, 100*s.HitRate)
	if s.StalledMS > 0 {
		fmt.Fprintf(&b, "the machine kept this process from running for %.1f s\n", float64(s.StalledMS)/1000)
	}
	if s.Mode == assignment.Consistent.String() {
		fmt.Fprintf(&b, "consistent mode: %d refusals, %d calls lost to the kill, %d overlaps in %d looks\n", s.Refused, s.KillErrors, s.Overlaps, s.Looks)
	}
	if len(s.Flooded) > 0 {
		b.WriteString(s.floodText())
	}
	for _, f := range s.Failures {
		fmt.Fprintf(&b, "FAILED: %s\n", f)
	}
	return b.String()
}
