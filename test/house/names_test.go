package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// declared is what each package of the repository declares, tests included, by the last
// part of its path: names, and for what types have "Type.member".
func declared(t *testing.T) map[string]map[string]bool {
	t.Helper()
	all := make(map[string]map[string]bool)
	err := filepath.WalkDir(root(t), func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != ".":
			return fs.SkipDir
		case !strings.HasSuffix(path, ".go"):
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		base := filepath.Base(filepath.Dir(path))
		if all[base] == nil {
			all[base] = make(map[string]bool)
		}
		for _, d := range f.Decls {
			declare(all[base], d)
		}
		return nil
	})
	if err != nil || len(all) < 20 {
		t.Fatalf("%d packages, %v", len(all), err)
	}
	return all
}

func declare(names map[string]bool, d ast.Decl) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		prefix := ""
		if d.Recv != nil {
			of := d.Recv.List[0].Type
			if p, ok := of.(*ast.StarExpr); ok {
				of = p.X
			}
			if id, ok := of.(*ast.Ident); ok {
				prefix = id.Name + "."
			}
		}
		names[prefix+d.Name.Name] = true
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.ValueSpec:
				for _, n := range s.Names {
					names[n.Name] = true
				}
			case *ast.TypeSpec:
				names[s.Name.Name] = true
				ast.Inspect(s.Type, func(n ast.Node) bool {
					if f, ok := n.(*ast.Field); ok {
						for _, n := range f.Names {
							names[s.Name.Name+"."+n.Name] = true
						}
					}
					return true
				})
			}
		}
	}
}

var (
	pathName   = regexp.MustCompile("`((?:assigner|assignment|backupdist|clerk|cmd|deploy|distributor|lease|loadbalance|proto|slicelet|test|\\.ci)(?:/[\\w.-]+)*)`")
	symbolName = regexp.MustCompile("`(\\w+)\\.([A-Z]\\w*(?:\\.\\w+)?)`")
)

// badNames are the files, packages and identifiers named in a page, in backquotes, that
// are not there.
func badNames(all map[string]map[string]bool, top, text string) (bad []string) {
	text = fence.ReplaceAllString(text, "")
	for _, m := range pathName.FindAllStringSubmatch(text, -1) {
		if _, err := os.Stat(filepath.Join(top, m[1])); err != nil {
			bad = append(bad, m[1])
		}
	}
	for _, m := range symbolName.FindAllStringSubmatch(text, -1) {
		if !all[m[1]][m[2]] {
			bad = append(bad, m[1]+"."+m[2])
		}
	}
	return bad
}

// otherNames are of the standard library, and one that is no name.
var otherNames = []string{"name.SUFFIX", "sort.Search", "http.Client", "synctest.Wait"}

func TestDocsNames(t *testing.T) {
	known, texts, top := declared(t), pages(t), root(t)
	for _, page := range slices.Sorted(maps.Keys(texts)) {
		for _, n := range badNames(known, top, texts[page]) {
			if !slices.Contains(otherNames, n) {
				t.Errorf("%s: there is no %s", page, n)
			}
		}
	}
	if n := len(symbolName.FindAllString(texts["deploy/docs/ARCHITECTURE.md"], -1)); n < 40 {
		t.Errorf("ARCHITECTURE.md names %d identifiers: it does not show the way any more", n)
	}
}

func TestDocsNamesCanFail(t *testing.T) {
	all := map[string]map[string]bool{"clerk": {"Clerk": true, "Clerk.Lookup": true}}
	got := badNames(all, root(t), "`clerk.Clerk.Lookup` `clerk.Clerk.Find` `clerk.New` `nosuch.Name` `assigner` `assigner/nosuch.go`\n```\n`clerk.No`\n```\n")
	if want := []string{"assigner/nosuch.go", "clerk.Clerk.Find", "clerk.New", "nosuch.Name"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestDocsImports holds ARCHITECTURE's table of imports to the rules of TestImports.
func TestDocsImports(t *testing.T) {
	var sb strings.Builder
	sb.WriteString("| folder | may import, of ours |\n| --- | --- |\n")
	for _, folder := range slices.Sorted(maps.Keys(mayImport)) {
		what := "nothing"
		switch may := mayImport[folder]; {
		case slices.Contains(may, "*"):
			what = "everything"
		case len(may) > 0:
			what = "`" + strings.Join(may, "`, `") + "`"
		}
		sb.WriteString("| `" + folder + "` | " + what + " |\n")
	}
	checkSection(t, "deploy/docs/ARCHITECTURE.md", "imports", sb.String())
}
