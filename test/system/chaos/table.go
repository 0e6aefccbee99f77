package chaos

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

// Table shows results in columns.
func Table(results []Result) string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "phase\ttime, s\tcalls\tanswered, %\tjudged\tlost\trouting, %\tmisrouted, %\tgenerations\tmoved\tleft\tfalse deaths\tworst gap, s\tslowest, s\t")
	for _, r := range results {
		fmt.Fprintf(w, "%s\t%.1f\t%d\t%.3f\t%d\t%d\t%.4f\t%.2f\t%d\t%.2f\t%.2f\t%d\t%.2f\t%.2f\t\n", r.Phase, r.Seconds, r.Calls, 100*r.Raw,
			r.Judged, r.Lost, 100*r.Routing, 100*r.Misrouted, r.Generations, r.Moved, r.Left, r.FalseDeaths, r.WorstGap, r.Slowest)
	}
	_ = w.Flush()
	return text.String()
}
