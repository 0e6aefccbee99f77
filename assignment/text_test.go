package assignment_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slicer-project/slicer/assignment"
)

func TestTextAndJSONRoundTrip(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		a := random(t, rng, 1+rng.IntN(60), 1+rng.IntN(12))
		text, err := a.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		fromText, err := assignment.Parse(text)
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, text)
		}
		// Through encoding/json, which escapes more than MarshalJSON does.
		data, err := json.MarshalIndent(a, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		fromJSON, err := assignment.ParseJSON(data)
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, data)
		}
		for name, b := range map[string]*assignment.Assignment{"text": fromText, "JSON": fromJSON} {
			if a.Checksum() != b.Checksum() {
				t.Errorf("seed %d: checksum changes through %s", seed, name)
			}
			if diff := cmp.Diff(structureOf(a), structureOf(b)); diff != "" {
				t.Errorf("seed %d: %s: %s", seed, name, diff)
			}
		}
		again, _ := fromText.MarshalText()
		if !bytes.Equal(text, again) {
			t.Errorf("seed %d: text changes: %s", seed, cmp.Diff(string(text), string(again)))
		}
	}
}

const sampleText = `slicer-assignment 1
job cache
store 9c1d0f3a5577e802
# made 2026-03-01T12:00:00Z
generation 1772366400000
previous 1772366395000
horizon 0
# index, name
task 0 cache-a address=10.0.0.1:8080 zone=eu-1 weight=1 state=running incarnation=5be04d9a31c77f01
task 1 cache-b address=10.0.0.2:8080 zone= weight=2.5 state=draining incarnation=77aa04d9a3ee0192
# first key, owners@since
slice 0000000000000000 cache-a@1772366395000
slice 4000000000000000 cache-a@1772366400000 cache-b@0
checksum CHECKSUM
end
`

const sampleJSON = `{"job":"cache","store_id":"9c1d0f3a5577e802","generation":1772366400000,"previous":1772366395000,"horizon":0,
"tasks":[
{"index":0,"name":"cache-a","incarnation":"5be04d9a31c77f01","address":"10.0.0.1:8080","zone":"eu-1","weight":1,"state":"running"},
{"index":1,"name":"cache-b","incarnation":"77aa04d9a3ee0192","address":"10.0.0.2:8080","zone":"","weight":2.5,"state":"draining"}],
"slices":[
{"start":"0000000000000000","end":"4000000000000000","replicas":[{"task":"cache-a","since":1772366395000}]},
{"start":"4000000000000000","end":"8000000000000000","replicas":[{"task":"cache-a","since":1772366400000},{"task":"cache-b","since":0}]}],
"checksum":"CHECKSUM"}`

// samples returns both forms of one assignment, with its checksum.
func samples(t *testing.T) (text, jsn string) {
	t.Helper()
	a, err := assignment.Parse([]byte(strings.Replace(sampleText, "checksum CHECKSUM\n", "", 1)))
	if err != nil {
		t.Fatal(err)
	}
	sum := fmt.Sprintf("%016x", a.Checksum())
	return strings.Replace(sampleText, "CHECKSUM", sum, 1), strings.Replace(sampleJSON, "CHECKSUM", sum, 1)
}

func TestSampleForms(t *testing.T) {
	text, jsn := samples(t)
	a, err := assignment.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	got, _ := a.MarshalText()
	if diff := cmp.Diff(text, string(got)); diff != "" {
		t.Error(diff)
	}
	b, err := assignment.ParseJSON([]byte(jsn))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(structureOf(a), structureOf(b)); diff != "" {
		t.Error(diff)
	}
	got, _ = b.MarshalJSON()
	if want := strings.ReplaceAll(jsn, "\n", ""); string(got) != want {
		t.Error(cmp.Diff(want, string(got)))
	}
	if got, want := a.String(), "job cache generation 1772366400000 (2 tasks, 2 slices)"; got != want {
		t.Errorf("String: %q, want %q", got, want)
	}
}

// What a tool that sorts keys makes of the JSON form is read too.
func TestParseJSONInAnyOrder(t *testing.T) {
	_, jsn := samples(t)
	var v any
	if err := json.Unmarshal([]byte(jsn), &v); err != nil {
		t.Fatal(err)
	}
	sorted, err := json.Marshal(v) // maps are sorted; the numbers are whole and small enough for float64
	if err != nil {
		t.Fatal(err)
	}
	sorted = bytes.ReplaceAll(sorted, []byte("1.7723664e+12"), []byte("1772366400000"))
	sorted = bytes.ReplaceAll(sorted, []byte("1.772366395e+12"), []byte("1772366395000"))
	if bytes.Index(sorted, []byte("slices")) > bytes.Index(sorted, []byte("tasks")) {
		t.Fatal("not sorted")
	}
	if _, err := assignment.ParseJSON(sorted); err != nil {
		t.Fatalf("%v\n%s", err, sorted)
	}
}

func TestParseErrors(t *testing.T) {
	text, _ := samples(t)
	for _, tc := range []struct{ name, old, new, want string }{
		{"magic", "slicer-assignment 1", "slicer-assignment 2", `line 1: first line: "slicer-assignment 2" is not allowed: want "slicer-assignment 1"`},
		{"job", "job cache", "job a/b", `line 2: job name: "a/b"`},
		{"store", "store 9c1d", "store 9C1D", `line 3: store: "9C1D0f3a5577e802" is not allowed: want 16 lower-case`},
		{"twice", "horizon 0", "horizon 0\nhorizon 0", `line 8: horizon: "0" is not allowed: want one line of it`},
		{"generation", "generation 1772366400000", "generation -1", `line 5: generation: "-1"`},
		{"generation too large", "generation 1772366400000", "generation 9007199254740992", `line 5: generation: "9007199254740992"`},
		{"previous", "previous 1772366395000", "previous 1772366400000", "previous: 1772366400000"},
		{"missing", "horizon 0\n", "", `horizon: "missing"`},
		{"word", "horizon 0", "horizn 0", `line 7: line: "horizn" is not allowed: want job, store,`},
		{"task columns", " zone=eu-1", "", "line 9: task:"},
		{"task attribute", "zone=eu-1", "zon=eu-1", `line 9: task cache-a: "zon=eu-1" is not allowed: want zone=...`},
		{"task index", "task 0", "task x", `line 9: task index: "x"`},
		{"task index large", "task 0", "task 131072", `line 9: task index: 131072`},
		{"task order", "task 0", "task 1", `task index: 1 is not allowed: want above 1`},
		{"weight", "weight=1 ", "weight=NaN ", `line 9: task weight: NaN`},
		{"state", "state=running", "state=happy", `line 9: state: "happy"`},
		{"incarnation", "incarnation=5be0", "incarnation=0x5be0", `line 9: task incarnation:`},
		{"incarnation 0", "5be04d9a31c77f01", "0000000000000000", `line 9: task incarnation: 0`},
		{"slice key", "slice 4000000000000000", "slice 400000000000000", `line 13: slice key: "400000000000000"`},
		{"slice past the end", "slice 4000000000000000", "slice 8000000000000000", "slice start: \"8000000000000000\""},
		{"slice order", "slice 4000000000000000", "slice 0000000000000000", "line 13: slice start: \"0000000000000000\" is not allowed: want above the start before"},
		{"gap", "slice 0000000000000000", "slice 0000000000000001", "line 12: first slice start"},
		{"no owner", " cache-a@1772366395000", "", "line 12: replicas: 0"},
		{"owner without since", "cache-b@0", "cache-b", `line 13: owner: "cache-b" is not allowed: want a task's name, @`},
		{"owner without name", "cache-b@0", "@0", `line 13: owner: "@0"`},
		{"unknown owner", "cache-b@0", "cache-c@0", `line 13: owner: "cache-c" is not allowed: want the name of a task`},
		{"owner twice", "cache-b@0", "cache-a@0", `owner: "cache-a" is not allowed: want once in slice 4000000000000000`},
		{"since of the future", "cache-b@0", "cache-b@1772366400001", "since of owner cache-b: 1772366400001"},
		{"since", "cache-b@0", "cache-b@x", `line 13: since: "x"`},
		{"checksum", "checksum ", "checksum 0", "line 14: checksum:"},
		{"damaged", "zone=eu-1", "zone=eu-2", "that of the content: it was changed or damaged"},
		{"cut short", "\nend\n", "\n", `line 14: last line: "missing" is not allowed: want "end"`},
		{"more", "\nend\n", "\nend\nx\n", `line 15: end: "x\n" is not allowed: want nothing after it`},
		{"end of what", "\nend\n", "\nend x\n", `line 15: end: "x"`},
		{"empty", text, "", `line 0: last line: "missing"`},
	} {
		if !strings.Contains(text, tc.old) {
			t.Fatalf("%s: nothing to replace", tc.name)
		}
		bad := strings.Replace(text, tc.old, tc.new, 1)
		_, err := assignment.Parse([]byte(bad))
		checkFieldError(t, tc.name, err, tc.want)
	}
}

func checkFieldError(t *testing.T, name string, err error, want string) {
	t.Helper()
	var field *assignment.FieldError
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: error %v, want %s", name, err, want)
	} else if !errors.As(err, &field) {
		t.Errorf("%s: %v holds no FieldError", name, err)
	}
}

func TestParseJSONErrors(t *testing.T) {
	_, jsn := samples(t)
	for _, tc := range []struct{ name, old, new, want string }{
		{"unknown key", `"horizon":0`, `"horizn":0`, `line 1: key: "horizn" is not allowed: want job, store_id,`},
		{"twice", `"horizon":0`, `"horizon":0,"job":"cache"`, `line 1: key: "job" is not allowed: want each key once`},
		{"missing", `"horizon":0,`, ``, `key: "none" is not allowed: want horizon in assignment`},
		{"job", `"job":"cache"`, `"job":"Cache"`, `line 1: job name: "Cache"`},
		{"job type", `"job":"cache"`, `"job":1`, `line 1: job: "number" is not allowed: want string`},
		{"null", `"job":"cache"`, `"job":null`, `line 1: job: "null" is not allowed`},
		{"generation", `"generation":1772366400000`, `"generation":1772366400000.5`, `generation: "number 1772366400000.5"`},
		{"generation too large", `"generation":1772366400000`, `"generation":9007199254740992`, `line 1: generation: 9007199254740992 is not allowed: want 0 to 9007199254740991`},
		{"store", `"9c1d`, `"0x9c1d`, `line 1: store_id: "0x9c1d0f3a5577e802"`},
		{"task key", `"zone":"eu-1"`, `"zon":"eu-1"`, `line 3: key: "tasks[0].zon"`},
		{"task missing", `"weight":2.5,`, ``, `line 4: key: "none" is not allowed: want weight in tasks[1]`},
		{"state", `"draining"`, `"gone"`, `line 4: tasks[1].state: state: "gone" is not allowed: want unknown, starting`},
		{"index", `"index":1`, `"index":-1`, `line 4: tasks[1].index: "number -1" is not allowed: want uint32`},
		{"tasks type", `"tasks":[`, `"tasks":{`, `tasks: "{" is not allowed: want an array`},
		{"slice type", "\n{\"start\":\"0", "\n[],{\"start\":\"0", `line 6: slices[0]: "[" is not allowed: want an object`},
		{"slice key", `"start":"4000`, `"start":"400`, `line 7: slices[1].start: slice key: "400000000000000"`},
		{"slice end", `"end":"4000000000000000"`, `"end":"4000000000000001"`, `line 7: slices[1].start: "4000000000000000" is not allowed: want 4000000000000001`},
		{"empty slice", `"end":"4000000000000000"`, `"end":"0000000000000000"`, `line 6: slice: "[0000000000000000,0000000000000000)"`},
		{"last end", `"end":"8000000000000000"`, `"end":"7000000000000000"`, `slices: end of the last: "7000000000000000"`},
		{"replica missing", `"task":"cache-b",`, ``, `line 7: key: "none" is not allowed: want task in slices[1].replicas[1]`},
		{"replica key", `"task":"cache-b"`, `"tsk":"cache-b"`, `line 7: key: "slices[1].replicas[1].tsk"`},
		{"unknown owner", `"task":"cache-b"`, `"task":"cache-c"`, `line 7: owner: "cache-c"`},
		{"since", `"since":0`, `"since":-1`, `line 7: slices[1].replicas[1].since: -1`},
		{"no replicas", `[{"task":"cache-a","since":1772366395000}]`, `[]`, `line 6: replicas: 0`},
		{"damaged", `"eu-1"`, `"eu-2"`, "it was changed or damaged"},
	} {
		if !strings.Contains(jsn, tc.old) {
			t.Fatalf("%s: nothing to replace", tc.name)
		}
		_, err := assignment.ParseJSON([]byte(strings.Replace(jsn, tc.old, tc.new, 1)))
		checkFieldError(t, tc.name, err, tc.want)
	}
	for _, tc := range []struct{ name, in, want string }{
		{"empty", "", "line 1: the JSON is cut short"},
		{"cut", jsn[:len(jsn)-30], "the JSON is cut short"},
		{"more", jsn + "\n{}", "something follows the assignment"},
		{"not JSON", "job cache", "line 1: invalid character"},
		{"array", "[]", `line 1: assignment: "[" is not allowed: want an object`},
	} {
		if _, err := assignment.ParseJSON([]byte(tc.in)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %s", tc.name, err, tc.want)
		}
	}
}

// However many since generations a text names, only as many as an assignment
// can hold are taken: it never silently loses one.
func TestParseTooManySince(t *testing.T) {
	var b strings.Builder
	b.WriteString("slicer-assignment 1\njob j\nstore 0000000000000001\ngeneration 1000\nprevious 0\nhorizon 0\n" +
		"task 0 t address=a:1 zone= weight=1 state=running incarnation=0000000000000001\n")
	for i := range 128 {
		fmt.Fprintf(&b, "slice %016x t@%d\n", i, i+1)
	}
	b.WriteString("end\n")
	_, err := assignment.Parse([]byte(b.String()))
	checkFieldError(t, "128", err, "at most 127 different generations")
	if _, err := assignment.Parse([]byte(strings.Replace(b.String(), "t@128", "t@127", 1))); err != nil {
		t.Error(err)
	}
}
