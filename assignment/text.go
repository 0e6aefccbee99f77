package assignment

import (
	"strings"
	"unicode/utf8"
)

// maxShown is how much of a value that is not allowed an error shows, bytes.
const maxShown = 80

// Clip returns s as it fits into a log line, an error or a message: valid UTF-8 of at
// most the given number of bytes, at least 3, and "..." at its end if it is longer.
func Clip(s string, most int) string {
	if len(s) > most {
		end := most - len("...")
		for end > 0 && !utf8.RuneStart(s[end]) {
			end--
		}
		s = s[:end] + "..."
	}
	return strings.ToValidUTF8(s, "?")
}

// ValidToken reports whether s is 1 to limit bytes of printable ASCII without
// space or slash, and so fit for a store key, a log line and a table cell.
func ValidToken(s string, limit int) bool {
	for _, c := range []byte(s) {
		if c <= ' ' || c >= 0x7f || c == '/' {
			return false
		}
	}
	return s != "" && len(s) <= limit
}
