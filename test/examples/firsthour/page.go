package firsthour

import (
	"fmt"
	"regexp"
	"strings"
)

// step is a block of commands, and what they print, if the page shows that.
type step struct {
	line     int // of the page, where the commands begin
	commands string
	shown    []string
}

// steps are those of a page: each block of sh, with the block of text that follows before the
// next one.
func steps(page string) (all []step, err error) {
	kind, begin := "", 0
	var block []string
	for i, l := range strings.Split(page, "\n") {
		fence, opens := strings.CutPrefix(l, "```")
		switch {
		case opens && kind == "":
			kind, begin, block = fence, i+2, nil
		case l == "```":
			switch {
			case kind == "sh":
				all = append(all, step{line: begin, commands: strings.Join(block, "\n") + "\n"})
			case kind == "text" && len(all) > 0 && all[len(all)-1].shown == nil:
				all[len(all)-1].shown = block
			case kind == "text":
				return nil, fmt.Errorf("line %d: what is printed follows no commands", begin)
			}
			kind = ""
		case kind != "":
			block = append(block, l)
		}
	}
	if kind != "" {
		return nil, fmt.Errorf("line %d: a block without an end", begin)
	}
	return all, nil
}

// missing is the first line of what the page shows that was not printed after those before it;
// ok if there is none.
func (s *step) missing(printed string) (line string, ok bool) {
	rest := strings.Split(printed, "\n")
	for _, want := range s.shown {
		if strings.TrimSpace(want) == "…" {
			continue
		}
		p := pattern(want)
		for {
			if len(rest) == 0 {
				return want, false
			}
			l := strings.Join(strings.Fields(rest[0]), " ")
			if rest = rest[1:]; p.MatchString(l) {
				break
			}
		}
	}
	return "", true
}

// pattern matches a line as the page shows it: … stands for anything, and spaces for spaces.
func pattern(shown string) *regexp.Regexp {
	words := strings.Join(strings.Fields(shown), " ")
	return regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(words), "…", ".*") + "$")
}
