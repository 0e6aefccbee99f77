package jobfile

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/slicer-project/slicer/assignment"
)

const accessField = "access"

// accessText is the patterns of a verb as a file has them, "" if there are none.
func accessText(a assignment.Access, v assignment.Verb) string {
	var list []string
	for _, p := range a.Of(v) {
		list = append(list, fmt.Sprintf("%q", p))
	}
	if list == nil {
		return ""
	}
	return "[" + strings.Join(list, ", ") + "]"
}

// accessChanges are the verbs for which rights differ.
func accessChanges(old, next assignment.Access) (all []Change) {
	for _, v := range assignment.Verbs {
		if from, to := accessText(old, v), accessText(next, v); from != to {
			all = append(all, Change{accessField + "." + v.String(), from, to})
		}
	}
	return all
}

func formatAccess(b *bytes.Buffer, a assignment.Access) {
	if a == (assignment.Access{}) {
		return
	}
	b.WriteString(accessField + ":\n")
	for _, v := range assignment.Verbs {
		if text := accessText(a, v); text != "" {
			fmt.Fprintf(b, "  %s: %s\n", v, text)
		}
	}
}
