package contexts

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/slicer-project/slicer/assignment"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// byHand is a file as an operator writes it.
const byHand = `# Control planes of the shop team.

current: staging # until the migration is over
contexts:
    # Runs on the laptop.
    dev:
        server: localhost:4720

    staging:
        server: "slicer.staging:4720" # one name, three addresses
        tls_ca: ca.crt
    # Ask the owners first.
    prod:
        server: slicer.prod:4720
        tls_cert: prod/ada.crt
        tls_key: prod/ada.key
        tls_ca: prod/ca.crt
# the end
`

func TestParse(t *testing.T) {
	c, err := Parse("f", []byte(byHand))
	want := map[string]Context{
		"dev":     {Server: "localhost:4720"},
		"staging": {Server: "slicer.staging:4720", CA: "ca.crt"},
		"prod":    {"slicer.prod:4720", "prod/ada.crt", "prod/ada.key", "prod/ca.crt"},
	}
	if err != nil || c.Current != "staging" || !maps.Equal(c.Contexts, want) || !slices.Equal(c.Names(), []string{"dev", "prod", "staging"}) {
		t.Errorf("%+v, %v", c, err)
	}
	for _, empty := range []string{"", "# nothing yet\n", "---\n", "{}\n", "contexts: {}\n"} {
		if c, err := Parse("f", []byte(empty)); err != nil || c.Current != "" || len(c.Contexts) != 0 {
			t.Errorf("%q: %+v, %v", empty, c, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	const one = "contexts:\n  a: {server: x:1}\n"
	many := "contexts:\n" + strings.Repeat("  a: {server: x:1}\n", MaxContexts+1)
	for text, want := range map[string]string{
		"currant: a\n":                                                `f:1: field of file: "currant" is not allowed: want current, contexts`,
		"contexts:\n  a: {sever: x:1}\n":                              `f:2: field of contexts.a: "sever" is not allowed: want server, tls_cert, tls_key, tls_ca`,
		"contexts:\n  a: {server: x:1, server: y:1}\n":                `f:2: field: "contexts.a.server" is not allowed: want each field once; it is in line 2 already`,
		one + "  a: {server: x:1}\n":                                  `f:3: name of a context: "a" is not allowed: want each context once`,
		"current: b\n" + one:                                          `f:1: current: "b" is not allowed: want the name of a context: a`,
		"current: b\n":                                                `f:1: current: "b" is not allowed: want the name of a context: there is none`,
		"current:\n" + one:                                            `f:1: current: "" is not allowed: want 1 to 63 printable ASCII characters without space or slash`,
		one + "---\n" + one:                                           `f:4: a second document; all contexts go into one`,
		"contexts: [a]\n":                                             `f:1: contexts: "a list of 1" is not allowed: want names of contexts and their fields`,
		"contexts:\n":                                                 `f:1: contexts: "" is not allowed: want names of contexts and their fields`,
		"contexts:\n  a:\n":                                           `f:2: contexts.a: "" is not allowed: want fields and their values: server, tls_cert, tls_key, tls_ca`,
		"contexts:\n  a/b: {server: x:1}\n":                           `f:2: name of a context: "a/b" is not allowed: want ` + aName,
		"contexts:\n  a:\n    tls_ca: x\n":                            `f:3: contexts.a.server is missing: want ` + aServer,
		"contexts:\n  a:\n    server: x\n":                            `f:3: contexts.a.server: "x" is not allowed: want ` + aServer,
		"contexts:\n  a:\n    server: [x]\n":                          `f:3: contexts.a.server: "a list of 1" is not allowed: want ` + aServer,
		"contexts:\n  a:\n    server: \"\\e[1mx:1\"\n":                `f:3: contexts.a.server: "\x1b[1mx:1" is not allowed: want ` + aServer,
		"contexts:\n  a:\n    server: x:1\n    tls_cert: c\n":         `f:3: contexts.a.tls_key is missing: want the file with the key of tls_cert`,
		"contexts:\n  a:\n    server: x:1\n    tls_key: c\n":          `f:3: contexts.a.tls_cert is missing: want the file with the certificate of tls_key`,
		"contexts:\n  a:\n    server: x:1\n    tls_ca:\n":             `f:4: contexts.a.tls_ca: "" is not allowed: want ` + aFileName,
		"contexts:\n  a:\n    server: x:1\n    tls_ca: \"a\\nb\"\n":   `f:4: contexts.a.tls_ca: "a\nb" is not allowed: want ` + aFileName,
		"contexts:\n  a:\n    server: &s x:1\n  b:\n    server: *s\n": `f:5: contexts.b.server: "*s" is not allowed: want ` + aServer,
		"a: [":                         `f:1: not YAML: `,
		strings.Repeat("#", MaxSize+1): `f: 1048577 bytes, at most 1048576 are allowed`,
		many:                           `f:2: contexts: "1001" is not allowed: want at most 1000 contexts`,
		"contexts:\n  a: {server: x:1, tls_ca: " + strings.Repeat("x", maxFileName+1) + "}\n": `f:2: contexts.a.tls_ca: "xxx`,
	} {
		c, err := Parse("f", []byte(text))
		if _, ok := errors.AsType[*Error](err); !ok || c != nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.60q:\n got %v\nwant %s", text, err, want)
		}
	}
}

// format is the config as a file, which must read as the same.
func format(t *testing.T, c *Config) string {
	t.Helper()
	data, err := c.Format()
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestComments: what an operator wrote stays, apart from what is about a context that is
// deleted.
func TestComments(t *testing.T) {
	c, err := Parse("f", []byte(byHand))
	if err != nil {
		t.Fatal(err)
	}
	same := format(t, c)
	for line := range strings.Lines(byHand) {
		if line = strings.TrimSpace(line); !strings.Contains(same, line) {
			t.Errorf("%q is gone:\n%s", line, same)
		}
	}
	if err := c.Set("staging", Context{Server: "slicer.staging:4721", CA: "ca.crt"}); err != nil {
		t.Fatal(err)
	}
	if err := c.Set("new", Context{Server: "new:1", Cert: "true", Key: "12"}); err != nil {
		t.Fatal(err)
	}
	if !c.Use("new") || !c.Delete("prod") || c.Delete("prod") || c.Use("prod") {
		t.Error("what is there, and what is not, is mixed up")
	}
	got := format(t, c)
	for _, want := range []string{"# Control planes of the shop team.", "current: new # until the migration is over", "  # Runs on the laptop.\n  dev:",
		`server: "slicer.staging:4721" # one name, three addresses`, `tls_cert: "true"`, "# the end"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	for _, gone := range []string{"Ask the owners", "prod"} {
		if strings.Contains(got, gone) {
			t.Errorf("%q in\n%s", gone, got)
		}
	}
	// The current one goes; what stood at the top stays there.
	if !c.Delete("new") || c.Current != "" {
		t.Errorf("current is %q", c.Current)
	}
	if got := format(t, c); !strings.Contains(got, "# Control planes of the shop team.") || strings.Contains(got, "current") {
		t.Errorf("after the current one was deleted:\n%s", got)
	}
	for _, name := range c.Names() {
		c.Delete(name)
	}
	if err := c.Set("again", Context{Server: "again:1"}); err != nil {
		t.Fatal(err)
	}
	if got := format(t, c); !strings.Contains(got, "contexts:\n  again:\n    server: again:1\n") {
		t.Errorf("from none:\n%s", got)
	}
	only, err := Parse("f", []byte("# for later\n\n# two\n"))
	if err != nil || only.Set("a", Context{Server: "a:1"}) != nil {
		t.Fatal(err)
	}
	if got := format(t, only); got != "# for later\n# two\n\ncontexts:\n  a:\n    server: a:1\n" {
		t.Errorf("a file of comments:\n%s", got)
	}
}

func TestSetRefuses(t *testing.T) {
	c, err := Parse("f", nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]Context{
		"a b": {Server: "x:1"}, "": {Server: "x:1"}, "a": {}, "b": {Server: "x:0"}, "c": {Server: "x:1", Cert: "c"}, "d": {Server: "x:1", CA: "\x00"},
	} {
		err := c.Set(name, x)
		if _, ok := errors.AsType[*assignment.FieldError](err); err == nil || !ok && !strings.Contains(err.Error(), " is missing: want ") || len(c.Contexts) != 0 {
			t.Errorf("%q: %+v is taken, or refused with %v", name, x, err)
		}
	}
	for i := range MaxContexts {
		if err := c.Set(fmt.Sprint("n", i), Context{Server: "x:1"}); err != nil {
			t.Fatal(err)
		}
	}
	if c.Set("more", Context{Server: "x:1"}) == nil || c.Set("n7", Context{Server: "y:1"}) != nil {
		t.Error("the bound does not hold, or holds for what is there")
	}
}

// FuzzParse: what is read can be changed and written, and reads as the same.
func FuzzParse(f *testing.F) {
	f.Add([]byte(byHand))
	f.Add([]byte("{current: a, contexts: {a: {server: 'x:1'}}}"))
	f.Add([]byte("---\n---\ncontexts:\n  \"1\": &x {server: x:1}\n  ? <<\n  : {server: x:1}\n"))
	f.Add([]byte("contexts:\n  a:\n    server: |-\n      x:1\n# end\n---\n"))
	f.Add([]byte("# c\n\n# d\n--- # e\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse("f", data)
		if err != nil {
			if _, ok := errors.AsType[*Error](err); !ok {
				t.Errorf("%T: %v", err, err)
			}
			return
		}
		names := c.Names()
		if len(names) == MaxContexts {
			return
		}
		if err := c.Set("added", Context{Server: "x:1", Cert: "null", Key: "~", CA: "# \"'"}); err != nil {
			t.Fatal(err)
		}
		c.Use("added")
		if len(names) > 0 {
			c.Delete(names[0])
			if err := c.Set(names[0], Context{Server: "[::1]:1"}); err != nil {
				t.Fatal(err)
			}
			c.Use(names[0])
		}
		text, err := c.Format()
		if err != nil {
			t.Fatalf("%q cannot be changed: %v", data, err)
		}
		back, err := Parse("f", text)
		if err != nil || back.Current != c.Current || !maps.Equal(back.Contexts, c.Contexts) {
			t.Errorf("%q\nreads as %+v, %v", text, back, err)
		}
	})
}
