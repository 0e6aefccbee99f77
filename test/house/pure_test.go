package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// pure is the packages that decide, and what each may import all the same: what they
// return follows from what they are given. They have no goroutine, so the race run
// leaves them out.
var pure = map[string][]string{
	"loadbalance": nil, "loadbalance/baseline": nil, "loadbalance/policy": nil, "loadbalance/subset": nil,
	"test/examples/ratelimit/quota":  nil,
	"loadbalance/sim":                {"os"},      // reads traces
	"loadbalance/overload":           {"context"}, // labels travel in it
	"assignment/subscriber/protocol": nil, "backupdist/protocol": nil, "distributor/fanout": nil, "assignment/limiter/fair": nil,
	"assignment/access": nil, "assigner/downstream": nil, "assigner/generate": nil, "assigner/membership": nil, "assigner/preference": nil, "assigner/clientindex": nil,
}

// impure is what they may neither import nor call.
var impure = map[string][]string{
	"context": nil, "net": nil, "os": nil, "sync": nil, "sync/atomic": nil, "math/rand": nil,
	"time":         {"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until"},
	"math/rand/v2": {"ExpFloat64", "Float32", "Float64", "Int", "Int64", "Int64N", "IntN", "N", "NormFloat64", "Perm", "Shuffle", "Uint32", "Uint64", "Uint64N", "UintN"},
}

func TestPure(t *testing.T) {
	for dir, may := range pure {
		files, err := filepath.Glob(filepath.Join(root(t), dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: no files, %v", dir, err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, "sabotage_on.go") {
				continue
			}
			for _, what := range impurities(t, name, nil, may...) {
				t.Errorf("%s: %s in a package that is to be pure", dir, what)
			}
		}
	}
}

func TestPureCanFail(t *testing.T) {
	got := impurities(t, "x.go", `package x
		import ("os"; random "math/rand/v2"; "time")
		var a, b = random.IntN(3), random.New(nil)
		func f(c chan int, d time.Duration) { go f(c, d); c <- 1; <-c; select {}; _ = time.Now(); _ = os.Args }`)
	if len(got) != 7 {
		t.Errorf("%q, want 7 of them", got)
	}
}

// impurities is what a file does that a pure one does not, source being its text
// if it is not on the disk, and may what it may import.
func impurities(t *testing.T, name string, source any, may ...string) (found []string) {
	t.Helper()
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, name, source, 0)
	if err != nil {
		t.Fatal(err)
	}
	add := func(at token.Pos, what string) { found = append(found, set.Position(at).String()+": "+what) }
	calls := make(map[string][]string) // by the name that the file has for a package
	for _, spec := range f.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		bad, listed := impure[path]
		switch {
		case !listed || slices.Contains(may, path):
		case bad == nil:
			add(spec.Pos(), "imports "+path)
		case spec.Name != nil:
			calls[spec.Name.Name] = bad
		case path == "math/rand/v2":
			calls["rand"] = bad
		default:
			calls[path] = bad
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			add(n.Pos(), "starts a goroutine")
		case *ast.SelectStmt:
			add(n.Pos(), "selects")
		case *ast.SendStmt:
			add(n.Pos(), "sends on a channel")
		case *ast.UnaryExpr:
			if n.Op == token.ARROW {
				add(n.Pos(), "receives from a channel")
			}
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && slices.Contains(calls[x.Name], n.Sel.Name) {
				add(n.Pos(), "uses "+x.Name+"."+n.Sel.Name)
			}
		}
		return true
	})
	return found
}
