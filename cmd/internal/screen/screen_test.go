package screen_test

import (
	"bytes"
	"testing"

	"github.com/slicer-project/slicer/cmd/internal/screen"
)

// TestDraw: the screen is cleared once, and what does not fit is cut off.
func TestDraw(t *testing.T) {
	var b bytes.Buffer
	height := 3
	s := screen.Screen{W: &b, Size: func() (int, int) { return 4, height }}
	for _, want := range []string{
		"\x1b[2J\x1b[Häbcd\x1b[K\n12\x1b[K\n\x1b[J",
		"\x1b[Häbcd\x1b[K\n\x1b[J",
	} {
		b.Reset()
		if err := s.Draw([]string{"äbcdef", "12", "x"}); err != nil || b.String() != want {
			t.Errorf("%q, %v, want %q", b.String(), err, want)
		}
		height = 0
	}
	if screen.Size(&b) != nil {
		t.Error("a buffer is taken for a terminal")
	}
}
