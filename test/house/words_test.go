package house

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// badWords are for people, and say nothing about a part of the system.
var badWords = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`(?i)\b(somebody|nobody|whoever|whomever|anybody|everybody)\b`), "the name of the part: it is not a person"},
	{regexp.MustCompile(`(?m)^(// )?\w+ (says|tells) (whether|if)\b`), `"reports whether"`},
}

// formerNames are identifiers that were replaced, and what by.
var formerNames = map[string]string{
	"comeBack": "retryAfter", "crowded": "movedAway", "guest": "autoshardingClient or remoteSession", "keeper": "leaseManager", "kick": "notify",
	"lane": "connector", "letGo": "relinquish", "manned": "hasDistributor", "poke": "notify", "scout": "scan", "shelf": "storeWatch", "tenure": "jobLease",
	"uppers": "upstreams",
}

// lockHeld is in the comment of a method whose caller has to hold a lock.
var lockHeld = regexp.MustCompile(`\b(mu|[Ll]ock)\s+is\s+held\b|\bcalled\s+with\s+\S+\s+held\b`)

// TestWords holds the product's sources, and the pages, to one vocabulary. What needs a
// lock held is named Locked.
func TestWords(t *testing.T) {
	top := root(t)
	for _, name := range goFiles(t) {
		path, err := filepath.Rel(top, name)
		if err != nil {
			t.Fatal(err)
		}
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, bad := range wordsIn(t, path, source) {
			t.Error(bad)
		}
	}
	texts := pages(t)
	for _, page := range slices.Sorted(maps.Keys(texts)) {
		for _, w := range badWords {
			if m := w.pattern.FindString(texts[page]); m != "" {
				t.Errorf("%s: %q: want %s", page, m, w.instead)
			}
		}
	}
}

// TestWordsAreFound breaks each rule once.
func TestWordsAreFound(t *testing.T) {
	const source = `package p
		// f says whether nobody is there.
		func f(poke int) string { return "somebody" }
		// Whoever calls g is told.
		func g() {}
		// fine says why, and who did it: an operator.
		func fine() {}
		// put makes it durable. The lock
		// is held.
		func put() {}
		// sendLocked sends. The lock is held.
		func sendLocked() {}`
	if got := wordsIn(t, "p.go", source); len(got) != 6 {
		t.Errorf("found %q", got)
	}
}

func wordsIn(t *testing.T, path string, source any) (found []string) {
	t.Helper()
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, path, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	look := func(at token.Pos, text string) {
		for _, w := range badWords {
			for _, m := range w.pattern.FindAllString(text, -1) {
				found = append(found, fmt.Sprintf("%s: %q: want %s", set.Position(at), m, w.instead))
			}
		}
	}
	for _, c := range f.Comments {
		for _, line := range c.List {
			look(line.Pos(), line.Text)
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if lockHeld.MatchString(n.Doc.Text()) && !strings.HasSuffix(n.Name.Name, "Locked") {
				found = append(found, fmt.Sprintf("%s: %s needs a lock held: name it %sLocked", set.Position(n.Pos()), n.Name.Name, n.Name.Name))
			}
		case *ast.BasicLit:
			if n.Kind == token.STRING {
				look(n.Pos(), n.Value)
			}
		case *ast.Ident:
			if now, ok := formerNames[n.Name]; ok {
				found = append(found, fmt.Sprintf("%s: %s is called %s", set.Position(n.Pos()), n.Name, now))
			}
		}
		return true
	})
	return found
}
