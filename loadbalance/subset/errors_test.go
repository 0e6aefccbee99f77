package subset

import (
	"errors"
	"math"
	"strings"
	"testing"
)

func TestBadInput(t *testing.T) {
	ok := Shape{Frontends: 3, Backends: Dense(9), Size: 2}
	with := func(f func(*Shape)) Shape {
		s := ok
		f(&s)
		return s
	}
	for _, c := range []struct {
		name     string
		a        Algorithm // nil: all
		s        Shape
		frontend int
		want     string
	}{
		{"negative frontend", nil, ok, -1, "subset: frontend is -1, want 0 to 2"},
		{"frontend of M", nil, ok, 3, "subset: frontend is 3, want 0 to 2"},
		{"M negative", nil, with(func(s *Shape) { s.Frontends = -1 }), 0, "subset: Frontends is -1, want 1 to 16777216"},
		{"M too large", nil, with(func(s *Shape) { s.Frontends = MaxTasks + 1 }), 0, "subset: Frontends is 16777217, want 1 to 16777216"},
		{"no backends", nil, with(func(s *Shape) { s.Backends = Backends{} }), 0, "subset: Backends is 0, want 1 to 16777216"},
		{"N negative", nil, with(func(s *Shape) { s.Backends = Dense(-4) }), 0, "subset: Backends is -4, want 1 to 16777216"},
		{"N too large", nil, with(func(s *Shape) { s.Backends = Dense(MaxTasks + 1) }), 0, "subset: Backends is 16777217, want 1 to 16777216"},
		{"k zero", nil, with(func(s *Shape) { s.Size = 0 }), 0, "subset: Size is 0, want 1 or more"},
		{"k negative", nil, with(func(s *Shape) { s.Size = -5 }), 0, "subset: Size is -5, want 1 or more"},
		{"frontend, M unknown", Rocksteadier{}, with(func(s *Shape) { s.Frontends = 0 }), MaxTasks, "subset: frontend is 16777216, want 0 to 16777215"},
		{"M needed", Ringsteady{Scaling: BothScaled}, with(func(s *Shape) { s.Frontends = 0 }), 0, "subset: Frontends is 0, want 1 to 16777216"},
		{"scaling", Ringsteady{Scaling: 3}, ok, 0, "subset: Scaling is 3, want 0 to 2"},
		{"lot negative", Rocksteadier{Lot: -1}, ok, 0, "subset: Lot is -1, want 1 to 64"},
		{"lot too long", Rocksteadier{Lot: 65}, ok, 0, "subset: Lot is 65, want 1 to 64"},
	} {
		algorithms := []Algorithm{c.a}
		if c.a == nil {
			algorithms = Algorithms()
		}
		for _, a := range algorithms {
			dst := []int{5}
			got, err := a.Append(dst, c.s, c.frontend)
			if len(got) != 1 || got[0] != 5 {
				t.Errorf("%s: %s: dst came back as %v", c.name, label(a), got)
			}
			var field *FieldError
			if !errors.As(err, &field) || err.Error() != c.want {
				t.Errorf("%s: %s: error %v, want %s", c.name, label(a), err, c.want)
			}
		}
	}
}

func TestLargestSize(t *testing.T) {
	for _, a := range Algorithms() {
		got := mustAppend(t, a, Shape{Frontends: 2, Backends: Dense(5), Size: math.MaxInt}, 1)
		checkSubset(t, label(a), got, Dense(5), 5)
	}
}

func TestSubsetsAndGridRefuse(t *testing.T) {
	article := ArticleGrid()
	for want, err := range map[string]error{
		"Frontends is 0":    second(Subsets(Random{}, Shape{Backends: Dense(3), Size: 1})),
		"Size is 0":         second(Subsets(Random{}, Shape{Frontends: 1, Backends: Dense(3)})),
		"Lot is 99":         second(Subsets(Rocksteadier{Lot: 99}, Shape{Frontends: 1, Backends: Dense(3), Size: 1})),
		"Lot is 98":         second(article.Summarize(Rocksteadier{Lot: 98})),
		"MinBackends is 0":  second(Grid{Size: 1, MaxBackends: 4, MaxFrontends: 4}.Summarize(Random{})),
		"MaxBackends is 4":  second(Grid{Size: 1, MinBackends: 5, MaxBackends: 4, MaxFrontends: 4}.Summarize(Random{})),
		"MaxFrontends is 1": second(Grid{Size: 1, MinBackends: 4, MaxBackends: 4, MaxFrontends: 1}.Summarize(Random{})),
		"Size is -1":        Grid{Size: -1, MinBackends: 4, MaxBackends: 4, MaxFrontends: 4}.Utilization(Random{}, nil),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestByName(t *testing.T) {
	for _, a := range Algorithms() {
		got, err := ByName(a.Name())
		if err != nil || got != a {
			t.Errorf("ByName(%q) = %#v, %v, want %#v", a.Name(), got, err, a)
		}
	}
	_, err := ByName("rocksteady")
	if err == nil || !strings.Contains(err.Error(), `"rocksteady"`) || !strings.Contains(err.Error(), "rocksteadier") {
		t.Errorf("unknown name: error %v, want the name and the known ones", err)
	}
}
