package subset

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestPresent(t *testing.T) {
	forSeeds(t, 50, func(t *testing.T, r *rand.Rand) {
		span := 1 + r.IntN(300)
		indexes := r.Perm(span)[:r.IntN(span+1)]
		given := slices.Clone(indexes)
		b, err := Present(indexes)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(indexes, given) {
			t.Fatal("Present changed its argument")
		}
		slices.Sort(given)
		if got := b.Append(nil); !slices.Equal(got, given) {
			t.Fatalf("holds %v, want %v", got, given)
		}
		if b.Len() != len(given) {
			t.Fatalf("Len is %d, want %d", b.Len(), len(given))
		}
		want := 0
		if len(given) > 0 {
			want = given[len(given)-1] + 1
		}
		if b.Span() != want {
			t.Fatalf("Span is %d, want %d", b.Span(), want)
		}
		for task := -2; task < span+70; task++ {
			if got := b.Has(task); got != slices.Contains(given, task) {
				t.Fatalf("Has(%d) is %v in %v", task, got, given)
			}
		}
		// Every cyclic range, as round robin reads it.
		for rank := range given {
			n := r.IntN(len(given) + 1)
			got := b.appendFrom(nil, rank, n)
			if want := slices.Concat(given, given)[rank:][:n]; !slices.Equal(got, want) {
				t.Fatalf("%d from rank %d of %v: %v", n, rank, given, got)
			}
		}
	})
}

func TestPresentWithoutHolesIsDense(t *testing.T) {
	b, err := Present([]int{2, 0, 1})
	if err != nil || b.bits != nil || b.Len() != 3 || b.Span() != 3 {
		t.Errorf("Present(2, 0, 1) is %+v, %v, want Dense(3)", b, err)
	}
}

func TestPresentRefuses(t *testing.T) {
	for want, indexes := range map[string][]int{
		"subset: Backends[1] is -1, want 0 to 16777215":       {0, -1},
		"subset: Backends[0] is 16777216, want 0 to 16777215": {MaxTasks, 0},
		"subset: Backends[3] is 4, want each index once":      {4, 1, 0, 4},
	} {
		if b, err := Present(indexes); err == nil || err.Error() != want || b.Len() != 0 {
			t.Errorf("Present(%v): %+v, error %v, want %s", indexes, b, err, want)
		}
	}
}
