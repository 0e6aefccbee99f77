package house

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// maxREADME is what one reads before giving up.
const maxREADME = 15 << 10

func TestDocsREADMEIsShort(t *testing.T) {
	if n := len(pages(t)["README.md"]); n == 0 || n > maxREADME {
		t.Errorf("README.md has %d bytes, at most %d are allowed: deploy/docs has room", n, maxREADME)
	}
}

// pages are the Markdown files of the repository, by path from its root.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := make(map[string]string)
	top := root(t)
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == ".git":
			return fs.SkipDir
		case !strings.HasSuffix(path, ".md"):
			return nil
		}
		text, err := os.ReadFile(path)
		rel, _ := filepath.Rel(top, path)
		all[filepath.ToSlash(rel)] = string(text)
		return err
	})
	if err != nil || len(all) < 5 {
		t.Fatalf("%d pages, %v", len(all), err)
	}
	return all
}

var (
	fence   = regexp.MustCompile("(?ms)^```.*?^```$")
	span    = regexp.MustCompile("`[^`\n]*`")
	link    = regexp.MustCompile(`\[[^\]]*\]\(([^)\s]*)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
)

// anchors are the names that the headings of a page have in links.
func anchors(text string) map[string]bool {
	found := make(map[string]bool)
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		found[strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, m[1])] = true
	}
	return found
}

// badLinks are the relative links of a page to files or headings that are not there.
func badLinks(all map[string]string, top, page string) (bad []string) {
	text := span.ReplaceAllString(fence.ReplaceAllString(all[page], ""), "")
	for _, m := range link.FindAllStringSubmatch(text, -1) {
		if strings.Contains(m[1], "://") {
			continue
		}
		path, anchor, anchored := strings.Cut(m[1], "#")
		to := page
		if path != "" {
			to = filepath.ToSlash(filepath.Join(filepath.Dir(page), path))
		}
		if _, err := os.Stat(filepath.Join(top, to)); err != nil || anchored && !anchors(all[to])[anchor] {
			bad = append(bad, m[1])
		}
	}
	return bad
}

func TestDocsLinks(t *testing.T) {
	all, top := pages(t), root(t)
	for _, page := range slices.Sorted(maps.Keys(all)) {
		for _, l := range badLinks(all, top, page) {
			t.Errorf("%s: there is no %s", page, l)
		}
	}
	// A page without a link to it is not found.
	for page := range all {
		if strings.HasPrefix(page, "deploy/docs/") && !strings.Contains(all["README.md"], "("+page+")") {
			t.Errorf("README.md has no link to %s", page)
		}
	}
}

func TestDocsLinksCanFail(t *testing.T) {
	all := map[string]string{"test/README.md": "# A title, of `two`\n[a](#a-title-of-two) [b](#b) [c](Y.md) [d](../go.mod)\n```\n[e](E.md)\n# b\n```\n"}
	if got := badLinks(all, root(t), "test/README.md"); !slices.Equal(got, []string{"#b", "Y.md"}) {
		t.Errorf("%q", got)
	}
}

var (
	goCommand = regexp.MustCompile(`(?:cd (\S+) && )?\bgo (?:-C (\S+) )?(?:test|run|build|vet|doc|tool)\b[^` + "`|\n#;]*")
	folderArg = regexp.MustCompile(`(?:^|\s)(\.(?:/[\w./-]*)?)(?:\s|$)`)
	nameArg   = regexp.MustCompile(`-(run|bench|fuzz)[ =]('[^']*'|\S+)`)
)

// badCommands are the commands of the go tool in a page that name packages, or tests and
// benchmarks of them, that are not there.
func badCommands(top, text string) (bad []string) {
	for _, m := range goCommand.FindAllStringSubmatch(strings.ReplaceAll(text, `\|`, "\x00"), -1) {
		command := strings.TrimSpace(strings.ReplaceAll(m[0], "\x00", "|"))
		base := filepath.Join(top, m[1], m[2])
		var sources []byte
		missing := false
		args := folderArg.FindAllStringSubmatch(strings.ReplaceAll(nameArg.ReplaceAllString(command, ""), " ", "  "), -1)
		for _, a := range args {
			folder, sub := strings.CutSuffix(a[1], "...")
			found, _ := filepath.Glob(filepath.Join(base, folder, "*.go"))
			for _, f := range found {
				data, _ := os.ReadFile(f)
				sources = append(sources, data...)
			}
			if _, err := os.Stat(filepath.Join(base, folder)); err != nil || len(found) == 0 && !sub {
				missing = true
			}
		}
		for _, n := range nameArg.FindAllStringSubmatch(command, -1) {
			pattern := strings.Trim(n[2], "'")
			if pattern == "^$" || pattern == "NONE" || pattern == "." || pattern == "NAME" || strings.Contains(command, "...") || len(args) == 0 {
				continue
			}
			kind := map[string]string{"run": "(?:Test|Example|Fuzz)", "bench": "Benchmark", "fuzz": "Fuzz"}[n[1]]
			declared := regexp.MustCompile(`(?m)^func (`+kind+`\w*)\(`).FindAllSubmatch(sources, -1)
			for alternative := range strings.SplitSeq(pattern, "|") {
				top, _, _ := strings.Cut(alternative, "/") // without names of subtests
				re, err := regexp.Compile(top)
				if err != nil || !slices.ContainsFunc(declared, func(d [][]byte) bool { return re.Match(d[1]) }) {
					missing = true
				}
			}
		}
		if missing {
			bad = append(bad, command)
		}
	}
	return bad
}

func TestDocsCommands(t *testing.T) {
	all, top := pages(t), root(t)
	for _, page := range slices.Sorted(maps.Keys(all)) {
		for _, c := range badCommands(top, all[page]) {
			t.Errorf("%s: %s names what is not there", page, c)
		}
	}
}

func TestDocsCommandsCanFail(t *testing.T) {
	got := badCommands(root(t), "`go test ./...` `go run ./cmd/slicer demo` `go test ./nosuch -run X`\n"+
		"| `go test ./test/house ./lease -run 'TestPure\\|TestSimulation' -v` | `go test ./test/house -run 'TestPure\\|TestNoSuch'` |\n"+
		"go -C test/bench test ./peers # `go -C test/bench test ./nosuch`\ngo test ./test/house -run '^$' -bench Pure\n")
	if len(got) != 4 {
		t.Errorf("%q, want 4", got)
	}
}

// TestDocsSnippets looks for each line of Go that README and the guide show in the
// programs of test/examples, which are compiled and run, and in examples of packages.
func TestDocsSnippets(t *testing.T) {
	var sources []byte
	for _, pattern := range []string{"test/examples/*/*/*.go", "*/example_test.go", "lease/remote/example_test.go", "test/slicertest/example_test.go"} {
		found, err := filepath.Glob(filepath.Join(root(t), pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: no files, %v", pattern, err)
		}
		for _, f := range found {
			data, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			sources = append(sources, data...)
		}
	}
	lines := 0
	texts := pages(t)
	for _, page := range []string{"README.md", "deploy/docs/GUIDE.md"} {
		for _, block := range fence.FindAllString(texts[page], -1) {
			code, ok := strings.CutPrefix(block, "```go\n")
			if !ok {
				continue
			}
			for line := range strings.Lines(strings.TrimSuffix(code, "```")) {
				line, _, _ = strings.Cut(strings.TrimSpace(line), " // ")
				if line == "" || line == "..." {
					continue
				}
				if lines++; !strings.Contains(string(sources), line) {
					t.Errorf("%s: %s stands in no example", page, line)
				}
			}
		}
	}
	if lines < 40 {
		t.Errorf("only %d lines were found", lines)
	}
}
