package house

import (
	"bytes"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// anyOrder are loops over maps that TestMapOrder cannot tell to be the same in any order.
var anyOrder = []string{
	"find",       // distributor/fanout: looks for the least by a total order
	"stragglers", // distributor/fanout: inserts by a total order
}

// TestMapOrder finds loops over maps in pure packages whose order may show in what comes
// out: Go goes through a map in another order each time.
func TestMapOrder(t *testing.T) {
	dirs := make([]string, 0, len(pure))
	for dir := range pure {
		dirs = append(dirs, "./"+dir)
	}
	slices.Sort(dirs)
	look := exports(t, dirs...)
	for _, dir := range dirs {
		set := token.NewFileSet()
		var files []*ast.File
		names, err := filepath.Glob(filepath.Join(root(t), dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, "sabotage_on.go") {
				continue
			}
			f, err := parser.ParseFile(set, name, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, f)
		}
		for _, at := range mapOrders(t, set, files, importer.ForCompiler(set, "gc", look)) {
			if where, fn, _ := strings.Cut(at, " in "); !slices.Contains(anyOrder, fn) {
				t.Errorf("%s: the order of a map may show in what %s does", where, fn)
			}
		}
	}
}

func TestMapOrderCanFail(t *testing.T) {
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, "x.go", `package x
		func first(m map[int]int) int { for k := range m { return k }; return 0 }
		func last(m map[int]int) (x int) { for k := range m { x = k }; return x }
		func list(m map[int]int) (x []int) { for k := range m { x = append(x, k) }; return x }
		func sum(m map[int]float64) (x float64) { for _, v := range m { x += v }; return x }
		func tell(m map[int]int) { for k := range m { println(k) } }
		func stop(m map[int]int) (n int) { for range m { if n++; n > 3 { break } }; return n }
		func fine(m map[int]*struct{ x int }, o map[int]int) (n, most int, any bool) {
			for k, v := range m { v.x, o[k], most = 1, 2, max(most, k); n += k; delete(m, k) }
			for _, v := range m { if v.x > 0 { return 0, 0, true } }
			return n, most, false
		}`, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := mapOrders(t, set, []*ast.File{f}, nil); len(got) != 6 {
		t.Errorf("%q, want 6 of them", got)
	}
}

// exports finds what the compiler says of packages and all that they import.
func exports(t *testing.T, of ...string) func(path string) (io.ReadCloser, error) {
	t.Helper()
	list := exec.Command("go", append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}, of...)...)
	list.Dir = root(t)
	var why bytes.Buffer
	list.Stderr = &why
	out, err := list.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, why.String())
	}
	files := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		files[path] = file
	}
	return func(path string) (io.ReadCloser, error) { return os.Open(files[path]) }
}

// mapOrders are the functions that range over a map and do something in the loop that may
// depend on the order, with the loop's place.
func mapOrders(t *testing.T, set *token.FileSet, files []*ast.File, imp types.Importer) (found []string) {
	t.Helper()
	info := &types.Info{Types: make(map[ast.Expr]types.TypeAndValue)}
	cfg := types.Config{Importer: imp}
	if _, err := cfg.Check("x", set, files, info); err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			sorts := false
			ast.Inspect(fn.Body, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok && strings.HasPrefix(s.Sel.Name, "Sort") {
					sorts = true
				}
				return true
			})
			ast.Inspect(fn.Body, func(n ast.Node) bool {
				loop, ok := n.(*ast.RangeStmt)
				if !ok {
					return true
				}
				if _, is := info.Types[loop.X].Type.Underlying().(*types.Map); is && !unordered(info, loop, sorts) {
					found = append(found, set.Position(loop.Pos()).String()+" in "+fn.Name.Name)
				}
				return true
			})
		}
	}
	return found
}

// unordered reports whether a loop does the same in any order: it sets elements of maps, or
// what they point to, deletes, counts, compares, or collects what is sorted afterwards.
func unordered(info *types.Info, loop *ast.RangeStmt, sorts bool) bool {
	own := func(e ast.Node) (is bool) {
		ast.Inspect(e, func(n ast.Node) bool {
			id, ok := n.(*ast.Ident)
			is = is || ok && (named(loop.Key, id.Name) || named(loop.Value, id.Name))
			return !is
		})
		return is
	}
	set := func(l, r ast.Expr, tok token.Token) bool {
		if tok == token.DEFINE {
			return true
		}
		basic, _ := info.Types[l].Type.Underlying().(*types.Basic)
		float := basic != nil && basic.Info()&types.IsFloat != 0
		switch l := l.(type) {
		case *ast.IndexExpr:
			return true
		case *ast.SelectorExpr:
			if own(l.X) {
				return true
			}
		}
		return tok != token.ASSIGN && !float || calls(r, "max", "min") || calls(r, "append") && sorts
	}
	ok := true
	ast.Inspect(loop.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ReturnStmt:
			ok = ok && !slices.ContainsFunc(n.Results, func(e ast.Expr) bool { return own(e) })
		case *ast.ExprStmt:
			ok = ok && calls(n.X, "delete")
		case *ast.AssignStmt:
			for i, l := range n.Lhs {
				ok = ok && set(l, n.Rhs[min(i, len(n.Rhs)-1)], n.Tok)
			}
		case *ast.BranchStmt:
			ok = ok && n.Tok == token.CONTINUE
		}
		return ok
	})
	return ok
}

func named(e ast.Expr, name string) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == name && name != "_"
}

func calls(e ast.Expr, names ...string) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	id, ok := call.Fun.(*ast.Ident)
	return ok && slices.Contains(names, id.Name)
}
