package firsthour

import (
	"os"
	"testing"
)

const path = "../../../deploy/docs/FIRST_HOUR.md"

func TestSteps(t *testing.T) {
	all, err := steps("a\n```sh\nx\ny\n```\n\n```text\none  …\ntwo\n```\n```sh\nz\n```\n```yaml\nq\n```\n")
	if err != nil || len(all) != 2 || all[0].commands != "x\ny\n" || all[0].line != 3 || len(all[0].shown) != 2 || all[1].commands != "z\n" || all[1].shown != nil {
		t.Fatalf("%+v, %v", all, err)
	}
	for printed, want := range map[string]string{
		"zero\none 1 2\n\ntwo\n": "", "one   \ntwo": "one  …", "one x\nthree": "two", "two\none x": "two", "": "one  …",
	} {
		if line, ok := all[0].missing(printed); line != want || ok != (want == "") {
			t.Errorf("%q: %q %v, want %q", printed, line, ok, want)
		}
	}
	for _, bad := range []string{"```text\nx\n```\n", "```sh\nx\n"} {
		if _, err := steps(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// The page has commands, and shows what most of them print.
func TestPageHasSteps(t *testing.T) {
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	all, err := steps(string(page))
	shown := 0
	for _, s := range all {
		if s.shown != nil {
			shown++
		}
	}
	if err != nil || len(all) < 10 || shown < 7 {
		t.Errorf("%d steps, %d with output, %v", len(all), shown, err)
	}
}
