package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"
)

// No type is larger than this: what is cannot be held in the head.
const (
	maxFields  = 25
	maxMethods = 40
)

// large is the types that still are, with their sizes, which may only shrink, and why.
var large = map[string]struct {
	fields, methods int
	why             string
}{
	"assignment/store/etcdstore.Store":        {16, 61, "the whole contract of a store on one type; a store of operations and one of records is to be tried"},
	"assignment/store/internal/record.Layout": {2, 63, "a method for each key of the store's layout"},
	"assignment/store/pebblestore.Store":      {16, 50, "as etcdstore.Store"},
	"loadbalance.placement":                   {29, 98, "is rebuilt with the balance of loads in motion"},
	"loadbalance.rebalancer":                  {42, 116, "embeds placement"},
	"loadbalance.takers":                      {34, 102, "embeds placement"},
}

// TestSizes counts the fields and methods of all types, those of embedded types of ours
// included, outside of tests and generated code.
func TestSizes(t *testing.T) {
	all := typeSizes(t)
	for name, s := range all {
		fields, methods := maxFields, maxMethods
		if l, ok := large[name]; ok {
			fields, methods = max(fields, l.fields), max(methods, l.methods)
			if s.fields <= maxFields && s.methods <= maxMethods {
				t.Errorf("%s is no longer large: take it out of the list", name)
			}
		}
		if s.fields > fields || s.methods > methods {
			t.Errorf("%s has %d fields and %d methods, at most %d and %d are allowed: split it by what it knows", name, s.fields, s.methods, fields, methods)
		}
	}
	for name, l := range large {
		if _, ok := all[name]; !ok || l.why == "" {
			t.Errorf("%s is in the list and is gone, or there is no reason", name)
		}
	}
	if testing.Verbose() {
		names := make([]string, 0, len(all))
		for name := range all {
			names = append(names, name)
		}
		sort.Slice(names, func(i, j int) bool {
			x, y := all[names[i]], all[names[j]]
			return max(2*x.fields, x.methods) > max(2*y.fields, y.methods) || max(2*x.fields, x.methods) == max(2*y.fields, y.methods) && names[i] < names[j]
		})
		for _, name := range names[:20] {
			t.Logf("%3d fields %3d methods  %s", all[name].fields, all[name].methods, name)
		}
	}
}

type typeSize struct {
	fields, methods int
	embeds          []string
}

func typeSizes(t *testing.T) map[string]*typeSize {
	t.Helper()
	top, set := root(t), token.NewFileSet()
	all := make(map[string]*typeSize)
	of := func(dir, name string) *typeSize {
		key := dir + "." + name
		if all[key] == nil {
			all[key] = new(typeSize)
		}
		return all[key]
	}
	for _, path := range goFiles(t) {
		f, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		dir, err := filepath.Rel(top, filepath.Dir(path))
		if err != nil {
			t.Fatal(err)
		}
		imports := make(map[string]string)
		for _, spec := range f.Imports {
			if p, ours := strings.CutPrefix(strings.Trim(spec.Path.Value, `"`), module+"/"); ours {
				name := filepath.Base(p)
				if spec.Name != nil {
					name = spec.Name.Name
				}
				imports[name] = p
			}
		}
		for _, decl := range f.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Recv != nil {
					of(dir, receiver(d.Recv.List[0].Type)).methods++
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if ts, ok := spec.(*ast.TypeSpec); ok {
						measure(of(dir, ts.Name.Name), ts.Type, dir, imports)
					}
				}
			}
		}
	}
	var total func(name string, under []string) (fields, methods int)
	total = func(name string, under []string) (fields, methods int) {
		s := all[name]
		if s == nil || slices.Contains(under, name) {
			return 0, 0
		}
		fields, methods = s.fields, s.methods
		for _, e := range s.embeds {
			f, m := total(e, append(under, name))
			fields, methods = fields+f, methods+m
		}
		return fields, methods
	}
	sums := make(map[string]*typeSize)
	for name := range all {
		f, m := total(name, nil)
		sums[name] = &typeSize{fields: f, methods: m}
	}
	return sums
}

// measure counts what a type's own text says.
func measure(s *typeSize, x ast.Expr, dir string, imports map[string]string) {
	switch x := x.(type) {
	case *ast.StructType:
		for _, f := range x.Fields.List {
			if len(f.Names) > 0 {
				s.fields += len(f.Names)
				continue
			}
			s.fields++
			if sel, ok := deref(f.Type).(*ast.SelectorExpr); ok {
				if p, ok := sel.X.(*ast.Ident); ok && imports[p.Name] != "" {
					s.embeds = append(s.embeds, imports[p.Name]+"."+sel.Sel.Name)
				}
			} else {
				s.embeds = append(s.embeds, dir+"."+receiver(f.Type))
			}
		}
	case *ast.InterfaceType:
		for _, m := range x.Methods.List {
			s.methods += len(m.Names)
		}
	}
}

func deref(x ast.Expr) ast.Expr {
	if p, ok := x.(*ast.StarExpr); ok {
		return p.X
	}
	return x
}

// receiver is the name of a receiver's type.
func receiver(x ast.Expr) string {
	switch x := deref(x).(type) {
	case *ast.Ident:
		return x.Name
	case *ast.IndexExpr:
		return receiver(x.X)
	case *ast.IndexListExpr:
		return receiver(x.X)
	}
	return "?"
}
