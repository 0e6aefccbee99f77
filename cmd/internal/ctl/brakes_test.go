package ctl_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/cmd/internal/run"
	"github.com/slicer-project/slicer/slicelet"
)

// owners returns the owners of an application key.
func (w *world) owners(key string) []string {
	w.t.Helper()
	var v struct {
		Keys []struct{ Tasks []struct{ Name string } }
	}
	if err := json.Unmarshal([]byte(w.must("lookup", "web", key, "--json")), &v); err != nil {
		w.t.Fatal(err)
	}
	var names []string
	for _, t := range v.Keys[0].Tasks {
		names = append(names, t.Name)
	}
	return names
}

// share is how much of the keyspace a task owns.
func (w *world) share(task string) float64 {
	w.t.Helper()
	for _, x := range w.inspect(w.distributor, "web").Tasks {
		if x.Name == task {
			return x.Share
		}
	}
	return 0
}

func (w *world) says(want string, args ...string) {
	w.t.Helper()
	r := w.ctl(args...)
	if r.code != 0 || !regexp.MustCompile(want).MatchString(r.out) {
		w.t.Errorf("slicerctl %s: exit %d %q %q, want %s", strings.Join(args, " "), r.code, r.out, r.errs, want)
	}
}

type entries struct {
	Entries []struct {
		Action, Who, Peer, Why, Assigner string
		Order, Generation                int64
		Decisions                        []struct{ Kind, Reason, To string }
	}
	LeftOut int `json:"left_out"`
}

func (w *world) history(args ...string) (h entries) {
	w.t.Helper()
	if err := json.Unmarshal([]byte(w.must(append([]string{"history", "web", "--json"}, args...)...)), &h); err != nil {
		w.t.Fatal(err)
	}
	return h
}

// newest is the newest generation that is stored.
func (w *world) newest() (g int64) {
	w.t.Helper()
	for _, e := range w.history("--limit", "1000").Entries {
		if e.Action == "" {
			g = e.Generation
		}
	}
	return g
}

// TestBrakes gives each order once, over the whole control plane.
func TestBrakes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply("name: web\nbalance: {interval: 200ms}\n")
	w.tasks("web", "web-0", "web-1", "web-2")
	first := w.inspect(w.distributor, "web").Generation

	// A key stays at its task whatever happens to others.
	to := "web-0"
	if w.owners("hot")[0] == to {
		to = "web-1"
	}
	w.says(`^key hot of job web is at task `+to+`, as of generation \d+ \(order 2\)\n$`, "pin", "web", "--key", "hot", "--task", to, "--reason", "large customer")
	w.eventually("the pinned key is there", func() bool { got := w.owners("hot"); return len(got) == 1 && got[0] == to })
	w.says(`is pinned to `+to+` by ada .* ago: large customer`, "inspect", "web")
	w.says(`put there by generation \d+, .* ago \(order.*\)\n  move \(pinned\) from .* to `+to+` of `, "explain", "web", "hot")
	w.says(`\[0000000000000000,2000000000000000\) of job web is at task web-2`, "pin", "web", "--from", "0000000000000000", "--to", "2000000000000000", "--task", "web-2", "--as", "bob")
	w.eventually("a quarter of the keys is there", func() bool { return w.share("web-2") >= .25 })

	// An excluded task owns nothing; what is pinned to it comes back with it.
	w.says(`^task web-2 of job web owns nothing, as of generation \d+ \(order 4\)\n$`, "exclude", "web", "web-2", "--reason", "bad disk")
	w.eventually("web-2 owns nothing", func() bool { return w.share("web-2") == 0 })
	w.says(`web-2 is given no slices: excluded by ada: bad disk`, "inspect", "web")
	w.says(`^task web-2 of job web may own slices again \(order 5; lifted the exclusion by ada\)\n$`, "include", "web", "web-2")
	w.eventually("web-2 has its keys back", func() bool { return w.share("web-2") >= .25 })

	// A frozen job changes only by order.
	w.says(`^job web is frozen for 1h0m0s \(order 6\)\n$`, "freeze", "web", "--for", "1h", "--reason", "incident")
	frozen := w.newest()
	s, err := slicelet.New(slicelet.Config{Job: "web", Task: "web-3", Address: "127.0.0.1:4", Distributors: []string{w.distributor}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	w.eventually("the new task is there", func() bool { return strings.Contains(w.must("inspect", "web"), "web-3") })
	w.eventually("the freeze shows", func() bool {
		return strings.Contains(w.must("inspect", "web"), "on hold: frozen by ada until")
	})
	w.says(`frozen for .* more by ada .* ago: incident`, "inspect", "web")
	if now := w.newest(); now != frozen {
		t.Errorf("generation %d has followed %d in a frozen job", now, frozen)
	}
	w.says(`owns nothing`, "exclude", "web", "web-1")
	w.eventually("web-1 owns nothing", func() bool { return w.share("web-1") == 0 })
	w.says(`is not frozen any more \(order \d+; lifted the freeze by ada\)`, "unfreeze", "web")
	w.eventually("the new task has slices", func() bool { return w.share("web-3") > 0 })
	w.must("include", "web", "web-1")

	// Back to the beginning, and no further.
	w.must("unpin", "web", "--key", "hot")
	// What is pinned to web-2 may have been there at the beginning.
	w.says(`^job web has the placement of generation \d+ again, as generation \d+, and is frozen \(order \d+(; except .* keeps? elsewhere)?\)\n$`,
		"rollback", "web", fmt.Sprint(first), "--freeze", "--reason", "better before")
	h := w.history("--limit", "100")
	last := h.Entries[len(h.Entries)-1]
	if last.Who != "ada" || last.Why != fmt.Sprintf("rollback to generation %d: better before", first) || len(last.Decisions) == 0 {
		t.Errorf("the history ends with %+v", last)
	}
	orders := map[string]string{}
	hot := assignment.Slice{Start: assignment.KeyOf("hot"), End: assignment.KeyOf("hot") + 1}
	for i, e := range h.Entries {
		if e.Assigner != "a0" || i > 0 && e.Order < h.Entries[i-1].Order {
			t.Errorf("entry %d is %+v, after %+v", i, e, h.Entries[max(i-1, 0)])
		}
		if e.Action != "" {
			orders[e.Action] = e.Who + ": " + e.Why
			if !regexp.MustCompile(`^127\.0\.0\.1:\d+ via in-process$`).MatchString(e.Peer) {
				t.Errorf("%s came from %q", e.Action, e.Peer)
			}
		}
	}
	for action, want := range map[string]string{
		"exclude web-2": "ada: bad disk", "include web-2": "ada: ", "freeze for 1h0m0s": "ada: incident", "unfreeze": "ada: ",
		"pin [0000000000000000,2000000000000000) to web-2":          "bob: ",
		fmt.Sprintf("pin key \"hot\" (%s) to %s", hot, to):          "ada: large customer",
		fmt.Sprintf("unpin key \"hot\" (%s)", hot):                  "ada: ",
		fmt.Sprintf("rollback to generation %d, and freeze", first): "ada: better before",
	} {
		if got, ok := orders[action]; !ok || got != want {
			t.Errorf("%s is noted as %q, want %q", action, got, want)
		}
	}
	if h := w.history("--limit", "3"); len(h.Entries) != 3 || h.LeftOut == 0 {
		t.Errorf("3 entries: %d, %d left out", len(h.Entries), h.LeftOut)
	}
	w.says(`(?m)^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d +- +ada \(127\.0\.0\.1:\d+ via in-process\) +exclude web-2 +bad disk$`, "history", "web", "--limit", "100", "--wide")
	w.says(`(?m)^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d +- +ada +exclude web-2\n {41,}why: bad disk$`, "history", "web", "--limit", "100")
	w.says(`owns nothing since generation`, "drain", "web", "web-0", "--as", "eve", "--reason", "reboot")
	w.says(`eve +drain web-0\n +why: reboot\n`, "history", "web")
}

// TestExplain follows a key from its first assignment.
func TestExplain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply("name: web\nhistory: 2\n")
	if r := w.ctl("explain", "web", "key"); r.code != 3 || strings.Count(r.errs, "\n") != 1 {
		t.Errorf("explain before there is a task: %+v", r)
	}
	w.says(`create job: history: 100 -> 2\n$`, "history", "web")
	w.tasks("web", "web-0", "web-1")
	w.says(`owns it since generation \d+: put there by generation \d+, .*\n  assign \(first assignment\) to web-\d`, "explain", "web", "key")
	for range 3 {
		w.must("pin", "web", "--key", "other", "--task", "web-0")
		w.must("pin", "web", "--key", "other", "--task", "web-1")
	}
	var v struct {
		Owners []struct {
			Task, Unknown string
			Given         int64
		}
		Pin    *struct{ Task string }
		Oldest int64
	}
	if err := json.Unmarshal([]byte(w.must("explain", "web", "key", "--json")), &v); err != nil {
		t.Fatal(err)
	}
	if len(v.Owners) != 1 || v.Owners[0].Given != 0 || v.Owners[0].Unknown != fmt.Sprintf("that is older than the history, which goes back to generation %d", v.Oldest) || v.Pin != nil {
		t.Errorf("a key that was given away before the history begins: %+v", v)
	}
	if err := json.Unmarshal([]byte(w.must("explain", "web", "other", "--json")), &v); err != nil {
		t.Fatal(err)
	}
	if len(v.Owners) != 1 || v.Owners[0].Given == 0 || v.Pin == nil || v.Pin.Task != "web-1" {
		t.Errorf("a pinned key: %+v", v)
	}
}

// TestBrakesRefuse wants one clear line and the right exit code each.
func TestBrakesRefuse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply("name: web\n")
	w.tasks("web", "web-0", "web-1")
	generation := w.inspect(w.distributor, "web").Generation
	for _, c := range []struct {
		args []string
		code int
		errs string
	}{
		{[]string{"freeze", "nothing"}, 3, `nothing`},
		{[]string{"freeze", "a/b"}, 2, `job name: "a/b" is not allowed`},
		{[]string{"freeze", "web", "--for", "-1s"}, 2, `--for: -1s is not allowed: want 1ms to 720h0m0s`},
		{[]string{"freeze", "web", "--for", "721h"}, 2, `--for: 721h0m0s is not allowed`},
		{[]string{"freeze", "web", "--as", ""}, 2, `--as: "" is not allowed`},
		{[]string{"drain", "web", "web-0", "--as", ""}, 2, `--as: "" is not allowed: want the name under which the order is noted`},
		{[]string{"freeze", "web", "--reason", strings.Repeat("x", 513)}, 1, `why: "xxx.*" is not allowed: want at most 512 bytes`},
		{[]string{"freeze", "web", "--reason", "two\nlines"}, 1, `why: "two\\nlines" is not allowed`},
		{[]string{"pin", "web", "--task", "web-0"}, 2, `pin: want --key KEY, or --from HEX and --to HEX`},
		{[]string{"pin", "web", "--from", "0000000000000000", "--task", "web-0"}, 2, `want --key KEY, or --from HEX and --to HEX`},
		{[]string{"pin", "web", "--key", "a", "--from", "0000000000000000", "--task", "web-0"}, 2, `want --key KEY, or`},
		{[]string{"pin", "web", "--key", strings.Repeat("x", 4097), "--task", "web-0"}, 2, `key 1 has 4097 bytes: want at most 4096`},
		{[]string{"pin", "web", "--key", "a"}, 2, `--task: "" is not allowed`},
		{[]string{"pin", "web", "--from", "12", "--to", "5000000000000000", "--task", "web-0"}, 2, `--from: slice key: "12" is not allowed: want 16 lower-case hexadecimal digits`},
		{[]string{"pin", "web", "--from", "0000000000000000", "--to", "9000000000000000", "--task", "web-0"}, 2, `--to: slice key: "9000000000000000" is not allowed: want at most 8000000000000000`},
		{[]string{"pin", "web", "--from", "5000000000000000", "--to", "5000000000000000", "--task", "web-0"}, 2, `--to: "5000000000000000" is not allowed: want a slice key above --from`},
		{[]string{"pin", "web", "--key", "a", "--task", "nobody"}, 3, `task: "nobody" is not allowed: want the name of one of the job's tasks`},
		{[]string{"pin", "nothing", "--key", "a", "--task", "web-0"}, 3, `nothing`},
		{[]string{"unpin", "web", "--key", "a"}, 3, `pin: "\[.*\)" is not allowed: want keys that are pinned`},
		{[]string{"exclude", "web", "nobody"}, 3, `task: "nobody" is not allowed`},
		{[]string{"exclude", "web"}, 2, `TASK is missing`},
		{[]string{"include", "web", "web-0"}, 3, `task: "web-0" is not allowed: want a task that is excluded`},
		{[]string{"rollback", "web", "yesterday"}, 2, `GENERATION: "yesterday" is not allowed: want 1 to \d+, as slicerctl history prints it`},
		{[]string{"rollback", "web", "-1"}, 2, `.`},
		{[]string{"rollback", "web", "17"}, 3, `generation: 17 is not allowed: want one that the store still keeps`},
		{[]string{"rollback", "web", fmt.Sprint(generation)}, 1, `generation \d+ is the newest`},
		{[]string{"rollback", "nothing", "17"}, 3, `nothing`},
		{[]string{"history", "nothing"}, 3, `nothing`},
		{[]string{"history", "web", "--limit", "0"}, 2, `--limit: 0 is not allowed: want 1 to 2000`},
		{[]string{"explain", "nothing", "key"}, 3, `nothing`},
		{[]string{"explain", "web", strings.Repeat("x", 4097)}, 2, `key 1 has 4097 bytes: want at most 4096`},
	} {
		r := w.ctl(c.args...)
		if r.code != c.code || r.out != "" || strings.Count(r.errs, "\n") != 1 || !regexp.MustCompile(c.errs).MatchString(r.errs) {
			t.Errorf("%s: exit %d, output %q, errors %q; want exit %d and %s", strings.Join(c.args, " "), r.code, r.out, r.errs, c.code, c.errs)
		}
	}
	for _, e := range w.history().Entries {
		if e.Action != "" && e.Action != "create job" {
			t.Errorf("what was refused is in the history: %+v", e)
		}
	}
	w.must("exclude", "web", "web-0", "--reason", "bad disk")
	r := w.ctl("exclude", "web", "web-1")
	if r.code != run.ExitFailed || !strings.Contains(r.errs, "no other task is running that could take the slices of web-1") {
		t.Errorf("the last one excluded: %+v", r)
	}
	w.must("pin", "web", "--from", "0000000000000000", "--to", "1000000000000000", "--task", "web-1")
	r = w.ctl("pin", "web", "--from", "0fffffffffffffff", "--to", "2000000000000000", "--task", "web-1")
	if r.code != run.ExitFailed || !strings.Contains(r.errs, "want keys that no other pin has: [0000000000000000,1000000000000000) is pinned to web-1; unpin that first") {
		t.Errorf("an overlapping pin: %+v", r)
	}
	// A task that may own nothing is refused at once.
	r = w.ctl("pin", "web", "--key", "later", "--task", "web-0")
	if r.code != run.ExitFailed || r.out != "" || !strings.Contains(r.errs, "web-0 is excluded by ada (bad disk); include it first\n") {
		t.Errorf("a pin to a task that is excluded: %+v", r)
	}
}
