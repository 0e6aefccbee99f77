package house

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestLogKeys compares the keys of all log lines with testdata/logkeys, which says
// what each means: one key for one thing. A failure is "error", and what led to
// something, in words, is "reason".
func TestLogKeys(t *testing.T) {
	listed := make(map[string]bool)
	data, err := os.ReadFile("testdata/logkeys")
	if err != nil {
		t.Fatal(err)
	}
	before := ""
	for line := range strings.Lines(string(data)) {
		key, meaning, _ := strings.Cut(strings.TrimSpace(line), " ")
		if key == "" || key == "#" {
			continue
		}
		if !regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`).MatchString(key) || meaning == "" || key <= before {
			t.Errorf("testdata/logkeys: %q: want lower-case words joined by _, in order, and their meaning", line)
		}
		before, listed[key] = key, false
	}
	for _, name := range goFiles(t) {
		for _, k := range logKeys(t, name, nil) {
			if _, ok := listed[k.key]; !ok {
				t.Errorf("%s: the log key %q is not in testdata/logkeys", k.at, k.key)
			}
			if k.failure && k.key != "error" {
				t.Errorf("%s: an error under the log key %q: want \"error\"", k.at, k.key)
			}
			listed[k.key] = true
		}
	}
	for key, used := range listed {
		if !used {
			t.Errorf("testdata/logkeys lists %q, which no log line has", key)
		}
	}
}

func TestLogKeysCanFail(t *testing.T) {
	got := logKeys(t, "x.go", `package x
		func f() {
			log.Warn("m", "a", 1, "why", err)
			c.say(levelInfo, "m", "b", x.err.Error())
			c.complain(now, key, "m", "h", 1)
			m.say(task, "%s", "not a key", 1)
			log.Log(ctx, level, "m", "g", 1)
			log.With("c", 1).Info("m")
			args = append(args, "d", err)
			attrs := []any{"e", 1, "f", err}
			http.Error(w, "not a key", 500)
			slog.LogAttrs(ctx, l, "m")
		}`)
	if s := fmt.Sprint(got); s != "[{a x.go:3:4 false} {why x.go:3:4 true} {b x.go:4:4 true} {h x.go:5:4 false} {g x.go:7:4 false} {c x.go:8:4 false} {d x.go:9:11 true} {e x.go:10:13 false} {f x.go:10:13 true}]" {
		t.Error(s)
	}
}

// goFiles is the product's files: without tests, generated code and folder test.
func goFiles(t *testing.T) (names []string) {
	t.Helper()
	top := root(t)
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && path != top && (strings.HasPrefix(name, ".") || path == filepath.Join(top, "test")):
			return fs.SkipDir
		case strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") && !strings.HasSuffix(name, ".pb.go"):
			names = append(names, path)
		}
		return nil
	})
	if err != nil || len(names) < 100 {
		t.Fatalf("%d files, %v", len(names), err)
	}
	return names
}

type logKey struct {
	key     string
	at      string
	failure bool // the value is an error
}

// logKeys is the keys of a file's log lines, as far as they stand there as they are.
func logKeys(t *testing.T, name string, source any) (found []logKey) {
	t.Helper()
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, name, source, 0)
	if err != nil {
		t.Fatal(err)
	}
	pairs := func(at token.Pos, args []ast.Expr) {
		seen := make(map[string]bool)
		for i := 0; i+1 < len(args); i += 2 {
			if key, ok := text(args[i]); ok {
				if seen[key] {
					t.Errorf("%s: the log key %q twice", set.Position(at), key)
				}
				seen[key] = true
				found = append(found, logKey{key, set.Position(at).String(), isError(args[i+1])})
			}
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CompositeLit:
			if a, ok := n.Type.(*ast.ArrayType); ok && len(n.Elts)%2 == 0 && isAny(a.Elt) {
				pairs(n.Pos(), n.Elts)
			}
		case *ast.CallExpr:
			switch fun := n.Fun.(type) {
			case *ast.Ident:
				if to, ok := n.Args, fun.Name == "append" && len(n.Args)%2 == 1; ok {
					if x, ok := to[0].(*ast.Ident); ok && (x.Name == "args" || x.Name == "attrs") {
						pairs(n.Pos(), n.Args[1:])
					}
				}
			case *ast.SelectorExpr:
				if x, ok := fun.X.(*ast.Ident); ok && (x.Name == "http" || x.Name == "status") {
					return true
				}
				switch name, args := fun.Sel.Name, n.Args; {
				case (name == "Debug" || name == "Info" || name == "Warn" || name == "Error") && len(args) > 2:
					pairs(n.Pos(), args[1:])
				case name == "say" && len(args) > 3 && isLevel(args[0]): // generate.Core's and fanout.Job's
					pairs(n.Pos(), args[2:])
				case name == "complain" && len(args) > 4: // fanout.Job's
					pairs(n.Pos(), args[3:])
				case name == "Log" && len(args) > 4:
					pairs(n.Pos(), args[3:])
				case name == "With" && len(args)%2 == 0:
					pairs(n.Pos(), args)
				}
			}
		}
		return true
	})
	return found
}

func text(x ast.Expr) (string, bool) {
	l, ok := x.(*ast.BasicLit)
	if !ok || l.Kind != token.STRING {
		return "", false
	}
	s, err := strconv.Unquote(l.Value)
	return s, err == nil
}

func isLevel(x ast.Expr) bool {
	if s, ok := x.(*ast.SelectorExpr); ok {
		return strings.HasPrefix(s.Sel.Name, "Level")
	}
	id, ok := x.(*ast.Ident)
	return ok && strings.HasPrefix(id.Name, "level")
}

func isAny(x ast.Expr) bool {
	id, ok := x.(*ast.Ident)
	return ok && id.Name == "any"
}

// isError tells err, x.err and x.Error() from other values.
func isError(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.Ident:
		return x.Name == "err"
	case *ast.SelectorExpr:
		return x.Sel.Name == "err"
	case *ast.CallExpr:
		f, ok := x.Fun.(*ast.SelectorExpr)
		return ok && f.Sel.Name == "Error" && len(x.Args) == 0
	}
	return false
}
