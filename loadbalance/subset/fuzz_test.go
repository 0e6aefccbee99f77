package subset

import (
	"errors"
	"slices"
	"testing"
)

// FuzzAppend asks every algorithm the same question, with any numbers at all.
// Bit i of missing makes a hole at index i.
func FuzzAppend(f *testing.F) {
	f.Add(256, 0, 256, 20, []byte{})
	f.Add(0, 13, 55, 10, []byte{0, 0, 0x20, 0xff})
	f.Add(7, 6, 11, 1000, []byte{0xff, 0x03})
	f.Add(-1, -1, -1, -1, []byte{1})
	f.Fuzz(func(t *testing.T, frontends, frontend, span, size int, missing []byte) {
		// The oracles take time and room in proportion to these.
		if span > 600 || frontends > 5000 {
			return
		}
		b := Dense(span)
		if len(missing) > 0 && span > 0 {
			present := slices.DeleteFunc(b.Append(nil), func(i int) bool {
				return i/8 < len(missing) && missing[i/8]>>(i%8)&1 != 0
			})
			var err error
			if b, err = Present(present); err != nil {
				t.Fatal(err)
			}
		}
		s := Shape{Frontends: frontends, Backends: b, Size: size}
		for _, a := range variants() {
			got, err := a.Append(nil, s, frontend)
			valid := b.Len() > 0 && size > 0 && frontend >= 0 && frontend < MaxTasks &&
				(frontends > frontend || frontends == 0 && !NeedsFrontends(a))
			if !valid {
				var field *FieldError
				if !errors.As(err, &field) || got != nil {
					t.Fatalf("%s %+v frontend %d: %v, error %v, want a FieldError", label(a), s, frontend, got, err)
				}
				continue
			}
			if err != nil {
				t.Fatalf("%s %+v frontend %d: %v", label(a), s, frontend, err)
			}
			checkSubset(t, label(a), got, b, size)
			q := ask{m: frontend, frontends: frontends, tasks: b.Append(nil), span: b.Span(), k: size}
			if want := oracle(a, q); !slices.Equal(got, want) {
				t.Fatalf("%s %+v:\n got %v\nwant %v", label(a), q, got, want)
			}
		}
	})
}
