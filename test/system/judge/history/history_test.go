package history

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slicer-project/slicer/assignment"
)

// What a process writes down is read again as the facts that follow from it.
func TestLog(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "p.log")
	l, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	l.Took("a", "k", 7, 10, 12)
	l.Took("a", "l", 8, 13, 14)
	l.Held("a", 2, 20, 25)
	l.Held("a", 2, 30, 35)
	l.Lost("a", "k")
	l.Held("a", 1, 40, 45)
	l.Took("b", "m", 9, 50, 51) // never checked again
	l.Used(Use{Owner: "b", Key: "k", Token: 9, TakenBegan: 60, Taken: 61, N: 2, CheckBegan: 65, CheckEnd: 66})
	l.Used(Use{Owner: "b", Key: "k", Token: 9, TakenBegan: 70, Taken: 71})
	l.Set("b", []string{"k", "m"}, 80, 81)
	told := Told{Owner: "b", At: 82, Arrived: []assignment.Slice{{Start: 1, End: 2}, {Start: 3, End: assignment.KeyspaceEnd}}}
	l.Told(told)
	done, open := Op{Client: "c", Key: "k", Write: true, Arg: "v", Got: "", Call: 1, Return: 2}, Op{Client: "c", Key: "k", Write: true, Arg: "w", Unknown: true, Call: 3, Return: 4}
	l.Did(done)
	l.Did(open)
	rate := Rate{"c", 90, 10, 9, 8}
	l.Rate(rate)
	l.Count("refused", 3)
	l.Count("refused", 4)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("held a 1 50"); err != nil { // killed within a line
		t.Fatal(err)
	}
	f.Close()
	if _, err := Create(path); err == nil {
		t.Error("a log was begun where there is one")
	}

	h, err := ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := []Fact{
		{"k", "a", 7, 10, 12, false},
		{"l", "a", 8, 13, 14, false},
		{"k", "a", 7, 12, 30, true}, {"k", "a", 7, 30, 35, false},
		{"m", "b", 9, 50, 51, false},
		{"k", "b", 9, 60, 61, false}, {"k", "b", 9, 65, 66, false}, {"k", "b", 9, 61, 65, true},
		{"k", "b", 9, 70, 71, false},
		{"k", "b", 0, 80, 81, false}, {"m", "b", 0, 80, 81, false},
		{"l", "a", 8, 14, 40, true}, {"l", "a", 8, 40, 45, false},
	}
	if d := cmp.Diff(want, h.Facts); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]Op{done, open}, h.Ops); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]Told{told}, h.Told); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]Rate{rate}, h.Rates); d != "" {
		t.Error(d)
	}
	if h.Counts["refused"] != 7 || h.Checks != 3+5+4+2 {
		t.Errorf("counts %v, checks %d", h.Counts, h.Checks)
	}
}

func FuzzRead(f *testing.F) {
	for _, s := range []string{
		"took a k 7 10 12\nheld a 1 20 25\nlost a k\n",
		"used b k 9 60 61 2 65 66\nset b 80 81 .,k,m\ntold b 82 .,1-2 .\n",
		"did c k write =v = 1 2\ndid c k read = ? 3 4\ncount refused 3\n",
		"took a k 7 10 9\n", "held a 1 1 2\n", "set b 1 2 k\n", "told b 1 .,2-1 .\n", "did c k write v =\n", "nonsense\n", "took a k 1 2 3\nheld a 1 1 2\n",
		"count x -1\n", "rate c 1 2 3\n", "took a k 1 2 3 4\n",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		h := New()
		err := h.Read(strings.NewReader(text))
		for _, fact := range h.Facts {
			if fact.Ended < fact.Began || fact.Key == "" || fact.Owner == "" || fact.Began < 0 {
				t.Errorf("%+v (%v)", fact, err)
			}
		}
		for _, o := range h.Ops {
			if o.Return < o.Call || o.Call < time.Duration(0) {
				t.Errorf("%+v (%v)", o, err)
			}
		}
	})
}
