package jobfile

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/slicer-project/slicer/assignment"
)

// Format prints a config as one document that Parse reads back as the same: all
// fields, but zone and store only when they are set.
func Format(c assignment.JobConfig) []byte {
	var b bytes.Buffer
	for i, f := range fields {
		group, name, nested := strings.Cut(f.name, ".")
		if !nested {
			name = f.name
		} else {
			if !strings.HasPrefix(fields[i-1].name, group+".") {
				b.WriteString(group + ":\n")
			}
			b.WriteString("  ")
		}
		if text := f.text(&c); text != "" {
			fmt.Fprintf(&b, "%s: %s\n", name, text)
		}
	}
	formatLimits(&b, c.Limits)
	formatAccess(&b, c.Access)
	return b.Bytes()
}

// text is the value as YAML, empty when it is an empty string.
func (f *field) text(c *assignment.JobConfig) string {
	switch p := f.at(c).(type) {
	case *int:
		return strconv.Itoa(shown(f, *p))
	case *float64:
		return strconv.FormatFloat(shown(f, *p), 'g', -1, 64)
	case *time.Duration:
		return duration(shown(f, *p))
	case *assignment.Mode:
		return p.String()
	case *assignment.Admission:
		return quoted(p.String())
	case *assignment.Missing:
		return p.String()
	case *assignment.Criticality:
		return p.String()
	case *string:
		if *p != "" {
			return quoted(*p)
		}
	}
	return ""
}

var plain = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)

// quoted gives text as every YAML reader takes it for text.
func quoted(s string) string {
	switch s {
	case "null", "true", "false", "yes", "no", "on", "off", "y", "n":
		return strconv.Quote(s)
	}
	if plain.MatchString(s) {
		return s
	}
	return strconv.Quote(s)
}

// duration leaves out the zeros that end Duration's text: 10m, not 10m0s.
func duration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}
