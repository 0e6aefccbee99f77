package ctl

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// table is rows of text in aligned columns. Columns whose title begins with ">"
// are aligned to the right.
type table struct {
	titles []string
	right  []bool
	rows   [][]string
	// fit, unless 0, is how wide it should be: the last column is wrapped into the
	// room that the others leave, at its own line breaks and between words.
	fit int
}

func newTable(titles ...string) *table {
	t := &table{right: make([]bool, len(titles))}
	for i, s := range titles {
		t.right[i] = strings.HasPrefix(s, ">")
		t.titles = append(t.titles, strings.TrimPrefix(s, ">"))
	}
	return t
}

func (t *table) row(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) print(w io.Writer) {
	for _, l := range t.lines() {
		fmt.Fprintln(w, l)
	}
}

func (t *table) lines() (out []string) {
	width := make([]int, len(t.titles))
	for _, r := range append([][]string{t.titles}, t.rows...) {
		for i, c := range r {
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	if t.fit > 0 {
		t.wrap(width)
	}
	for _, r := range append([][]string{t.titles}, t.rows...) {
		var b strings.Builder
		for i, c := range r {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(c))
			if i > 0 {
				b.WriteString("  ")
			}
			if t.right[i] {
				b.WriteString(pad + c)
			} else {
				b.WriteString(c + pad)
			}
		}
		out = append(out, strings.TrimRight(b.String(), " "))
	}
	return out
}

// wrap makes rows of the lines of the last cells.
func (t *table) wrap(width []int) {
	last := len(width) - 1
	room := t.fit
	for _, n := range width[:last] {
		room -= n + 2
	}
	var rows [][]string
	for _, r := range t.rows {
		cells := r[:last]
		for _, line := range wrap(r[last], room) {
			rows = append(rows, append(slices.Clone(cells), line))
			cells = make([]string, last)
		}
	}
	t.rows = rows
}

// wrap breaks text into lines of at most width characters, but for words that are longer.
func wrap(text string, width int) (lines []string) {
	for paragraph := range strings.SplitSeq(text, "\n") {
		line := ""
		for _, word := range strings.Fields(paragraph) {
			switch {
			case line == "":
				line = word
			case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= width:
				line += " " + word
			default:
				lines = append(lines, line)
				line = word
			}
		}
		lines = append(lines, line)
	}
	return lines
}

// clip cuts text off that is longer than width characters.
func clip(text string, width int) string {
	if r := []rune(text); len(r) > width {
		return string(r[:width-3]) + "..."
	}
	return text
}

// percent prints a share of 0 to 1 with three significant digits or so.
func percent(x float64) string {
	switch {
	case x == 0:
		return "0%"
	case x < .0001:
		return "<.01%"
	case x < .1:
		return fmt.Sprintf("%.2f%%", 100*x)
	}
	return fmt.Sprintf("%.1f%%", 100*x)
}

// rate prints load units a second.
func rate(x float64) string {
	if x >= 100 || x == 0 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.3g", x)
}

// age prints a duration as a person would say it.
func age(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d < 48*time.Hour:
		s := d.Round(time.Second).String()
		if d >= time.Hour {
			s = d.Round(time.Minute).String()
			s = strings.TrimSuffix(s, "0s")
		}
		return s
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// or is s, or a placeholder where a cell would be empty.
func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
