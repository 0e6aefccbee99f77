package house

import (
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// usages finds our programs in a page, with the words that follow on the line.
var usages = regexp.MustCompile("(?:cmd/|bin/|`)(slicerctl|slicerproxy|slicer|assigner|distributor|backupdist)((?:[ \t]+[^\\s`|;&<>()#]+)*)")

var (
	commandLine = regexp.MustCompile(`(?m)^  ([a-z]+) `)
	flagLine    = regexp.MustCompile(`(?m)^ +(?:-\w, )?(--[a-z-]+)`)
	commandWord = regexp.MustCompile(`^[a-z]+$`)
)

// manual is the help of our programs and their commands.
type manual struct {
	bin  string
	read map[string]help // by path, such as "slicerctl job apply"
}

type help struct{ commands, flags []string }

func (m *manual) of(t *testing.T, path ...string) help {
	t.Helper()
	key := strings.Join(path, " ")
	if h, ok := m.read[key]; ok {
		return h
	}
	out, err := exec.Command(filepath.Join(m.bin, path[0]), append(slices.Clone(path[1:]), "--help")...).Output()
	if err != nil {
		t.Fatalf("%s --help: %v", key, err)
	}
	var h help
	_, list, _ := strings.Cut(string(out), "\nAvailable Commands:\n")
	list, _, _ = strings.Cut(list, "\n\n")
	for _, c := range commandLine.FindAllStringSubmatch(list, -1) {
		h.commands = append(h.commands, c[1])
	}
	_, list, _ = strings.Cut(string(out), "\nFlags:\n")
	for _, f := range flagLine.FindAllStringSubmatch(list, -1) {
		h.flags = append(h.flags, f[1])
	}
	m.read[key] = h
	return h
}

// wrong is what a use of a program names that the program does not have.
func (m *manual) wrong(t *testing.T, program string, words []string) (bad []string) {
	t.Helper()
	path := []string{program}
	for _, w := range words {
		flag, _, _ := strings.Cut(w, "=")
		switch h := m.of(t, path...); {
		case strings.HasPrefix(w, "--"):
			if flag = strings.TrimRight(flag, ".,"); !slices.Contains(h.flags, flag) {
				bad = append(bad, flag)
			}
		case slices.Contains(h.commands, w):
			path = append(path, w)
		case len(h.commands) > 0 && commandWord.MatchString(w):
			return append(bad, w)
		}
	}
	return bad
}

// testUsage holds the uses of our programs, in all pages, to their help.
func testUsage(t *testing.T, bin string) {
	m := &manual{bin: bin, read: make(map[string]help)}
	texts, found := pages(t), 0
	for _, page := range slices.Sorted(maps.Keys(texts)) {
		for _, u := range usages.FindAllStringSubmatch(texts[page], -1) {
			found++
			for _, w := range m.wrong(t, u[1], strings.Fields(u[2])) {
				t.Errorf("%s: %s%s: there is no %s", page, u[1], u[2], w)
			}
		}
	}
	if found < 50 {
		t.Errorf("only %d uses of programs were found", found)
	}
	for line, want := range map[string]string{"job apply --dry-run --drj-run=1 FILE": "--drj-run", "job aply -f FILE": "aply", "inspect JOB --slices": ""} {
		if got := strings.Join(m.wrong(t, "slicerctl", strings.Fields(line)), " "); got != want {
			t.Errorf("slicerctl %s: %q is found wrong, not %q", line, got, want)
		}
	}
}
