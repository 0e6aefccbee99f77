// Package screen draws one view over the other on a terminal.
package screen

import (
	"bytes"
	"io"
	"os"

	"golang.org/x/term"
)

// Size returns what tells the width and height of the terminal that w is, in characters; nil if
// it is none that can be drawn on.
func Size(w io.Writer) func() (width, height int) {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return func() (int, int) {
		width, height, err := term.GetSize(int(f.Fd()))
		if err != nil {
			return 80, 24
		}
		return width, height
	}
}

// Screen is a terminal of some size, which may change.
type Screen struct {
	W     io.Writer
	Size  func() (width, height int)
	began bool
}

// Draw draws lines over those drawn before, cut to the size of the screen.
func (s *Screen) Draw(lines []string) error {
	width, height := s.Size()
	lines = lines[:min(len(lines), max(height-1, 1))]
	var b bytes.Buffer
	if !s.began {
		b.WriteString("\x1b[2J")
		s.began = true
	}
	b.WriteString("\x1b[H") // home; each line clears what it leaves over, so nothing flickers
	for _, l := range lines {
		r := []rune(l)
		b.WriteString(string(r[:min(len(r), width)]))
		b.WriteString("\x1b[K\n")
	}
	b.WriteString("\x1b[J")
	_, err := s.W.Write(b.Bytes())
	return err
}
