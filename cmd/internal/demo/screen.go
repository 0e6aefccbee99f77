package demo

import (
	"fmt"
	"strings"

	"github.com/slicer-project/slicer/cmd/internal/screen"
)

// screenOutput redraws one view on a terminal.
type screenOutput struct {
	on screen.Screen

	title, hint, page string
	seconds           int
	events            []event
}

// eventsShown is how many events stay in view, and barWidth how wide the
// largest bar is, columns.
const (
	eventsShown = 8
	barWidth    = 36
)

func (o *screenOutput) begin(c *Config, at addresses) {
	o.page = at.page
	o.title = "Slicer demo: " + headline(c)
	o.hint = fmt.Sprintf("look inside: %s --server %s inspect %s", command("slicerctl"), at.distributor, jobName)
	if at.page != "" {
		o.hint = fmt.Sprintf("see it: %s   %s", at.page, o.hint)
	}
	o.seconds = int(c.Duration.Seconds())
	_ = o.on.Draw([]string{o.title, o.hint}) // an error comes again with the first second
}

func (o *screenOutput) tick(t *tick) error {
	o.events = append(o.events, t.Events...)
	return o.on.Draw(o.lines(t))
}

func (o *screenOutput) lines(t *tick) []string {
	lines := []string{
		o.title, o.hint, "",
		fmt.Sprintf("%3d s of %d s   %s", t.Second, o.seconds, t.calls()),
		strings.Repeat(" ", len(fmt.Sprintf("%3d s of %d s   ", t.Second, o.seconds))) + t.shards(), "",
	}
	mean, largest, name := 0., 0., 0
	for _, k := range t.Tasks {
		mean += k.Load / float64(len(t.Tasks))
		largest = max(largest, k.Load)
		name = max(name, len(k.Name))
	}
	// Twice the mean fills the bar, so that an even load looks even.
	full := max(2*mean, largest, 1)
	for _, k := range t.Tasks {
		n := int(k.Load/full*barWidth + .5)
		bar := strings.Repeat("█", n) + strings.Repeat("·", barWidth-n)
		lines = append(lines, fmt.Sprintf("%-*s  %-8s  %s  %7.0f/s  %4d slices  %5.1f%% of keys", name, k.Name, k.State, bar, k.Load, k.Slices, 100*k.Share))
	}
	lines = append(lines, "")
	for _, e := range o.events[max(0, len(o.events)-eventsShown):] {
		lines = append(lines, e.line())
	}
	return lines
}

func (o *screenOutput) end(s *Summary) error {
	_, err := fmt.Fprint(o.on.W, s.text(), next(o.page))
	return err
}
