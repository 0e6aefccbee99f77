package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// Where clients can make names of jobs up, their series are dropped by exact labels:
// DeletePartialMatch looks at those of all jobs, so that n names take n * n steps.
func TestSeriesAreDroppedByExactLabels(t *testing.T) {
	for _, dir := range []string{"assigner", "distributor", "backupdist"} {
		files := 0
		err := filepath.WalkDir(filepath.Join(root(t), dir), func(name string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}
			files++
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok && id.Name == "DeletePartialMatch" {
					t.Errorf("%s calls DeletePartialMatch", name)
				}
				return true
			})
			return nil
		})
		if err != nil || files == 0 {
			t.Fatalf("%s: %d files, %v", dir, files, err)
		}
	}
}
