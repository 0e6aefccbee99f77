package xds

import (
	"os"
	"strings"
	"testing"

	"github.com/slicer-project/slicer/assignment"
)

// vectors are those of deploy/docs/REFERENCE.md, and what has every length of a tail.
var vectors = func() []string {
	all := []string{"", "a", "user/4711", "0123456789abcdef", "Grüße, 世界", "The quick brown fox jumps over the lazy dog", strings.Repeat("0123456789", 11)}
	for i := 1; i < 80; i++ {
		all = append(all, strings.Repeat("a1B", 30)[:i])
	}
	return all
}()

// XDS.md shows the programs that this package runs, and the vectors of the hash.
func TestPageShowsWhatIsRun(t *testing.T) {
	page, err := os.ReadFile("../../../deploy/docs/XDS.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"slicekey.mjs", "slicekey.py", "SliceKey.java", "slicekey.cc", "bootstrap.json"} {
		if !strings.Contains(string(page), "testdata/"+name) {
			t.Errorf("XDS.md does not lead to %s", name)
		}
	}
	for _, key := range vectors[1:4] {
		if row := "| `" + key + "` | `" + assignment.KeyOf(key).String() + "` |"; !strings.Contains(string(page), row) {
			t.Errorf("XDS.md has no row %s", row)
		}
	}
}
