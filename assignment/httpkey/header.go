package httpkey

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Headers between Slicer's own programs. Proxies take them out of what comes
// from outside.
const (
	// Prefix begins all of them.
	Prefix = "Slicer-"
	// HeaderKey is the request's key, by EncodeKey.
	HeaderKey = "Slicer-Key"
	// HeaderGeneration is the generation of the assignment that the sender
	// went by, decimal.
	HeaderGeneration = "Slicer-Generation"
	// HeaderRefused comes with 421 Misdirected Request and names the task that does
	// not own the key, in consistent mode, and has done nothing.
	HeaderRefused = "Slicer-Refused-Task"
	// HeaderLost comes with 409 Conflict and names the task that has lost the key
	// while the request ran, in consistent mode: the request may have been carried
	// out, and its answer was held back.
	HeaderLost = "Slicer-Lost-Task"
	// HeaderAttempt says how often the sender has sent the request before since a task
	// had no room for it or could not be reached, decimal. First attempts do not carry
	// it.
	HeaderAttempt = "Slicer-Attempt"
	// HeaderCriticality says how critical the request is: critical_plus, critical,
	// sheddable_plus or sheddable; for anything else the job's default holds.
	HeaderCriticality = "Slicer-Criticality"
	// HeaderCohort is the request's cohort, 0 to 127, decimal; otherwise one is drawn.
	HeaderCohort = "Slicer-Cohort"
	// HeaderCustomer is what the request is to be charged to. Whether it is believed,
	// slicelet.Config.Customer decides.
	HeaderCustomer = "Slicer-Customer"
	// HeaderTimeout is how long the sender waits for the answer: 1 to MaxTimeout, in
	// milliseconds, decimal. gRPC has a header of its own.
	HeaderTimeout = "Slicer-Timeout"
	// HeaderOverloaded comes with 503 Service Unavailable from a task that has no room
	// for the request, and has done nothing: OverloadedTask where another owner of the
	// key may be asked, OverloadedAll where the request should not be sent again.
	HeaderOverloaded = "Slicer-Overloaded"
	// HeaderLevel is in answers of a task that has no room for all that is asked of it:
	// overload.Level.String.
	HeaderLevel = "Slicer-Level"
	// HeaderDraining is in answers of a task that drains.
	HeaderDraining = "Slicer-Draining"
	// HeaderToken is what a sidecar tells its server in consistent mode, beside HeaderGeneration:
	// slicelet.Handle.FencingToken of the request's key, decimal.
	HeaderToken = "Slicer-Fencing-Token"
	// HeaderLoad is in answers of a server with a sidecar: what the request counts for in a job whose
	// load metric is custom (slicelet.Handle.ReportLoad), a decimal number.
	HeaderLoad = "Slicer-Load"
	// HeaderForwarded is in requests that a sidecar has passed on to the owner's, which passes them
	// on no further.
	HeaderForwarded = "Slicer-Forwarded"
	// HeaderStandsFor says that the request is a trial request, and for how many it stands:
	// 1 to overload.MostStandsFor, decimal.
	HeaderStandsFor = "Slicer-Stands-For"
)

// MaxTimeout is the largest that HeaderTimeout says.
const MaxTimeout = 24 * time.Hour

// TimeoutOf is how long the sender of a request waits for the answer, by HeaderTimeout; it is
// not ok if that says nothing, or what is out of range. What is nearest to the server has the
// last word.
func TimeoutOf(h http.Header) (d time.Duration, ok bool) {
	v := h[HeaderTimeout]
	if len(v) == 0 {
		return 0, false
	}
	ms, err := strconv.ParseInt(v[len(v)-1], 10, 64)
	if err != nil || ms <= 0 || ms > MaxTimeout.Milliseconds() {
		return 0, false
	}
	return time.Duration(ms) * time.Millisecond, true
}

// What HeaderOverloaded says.
const (
	OverloadedTask = "task"
	OverloadedAll  = "all"
	// OverloadedQuota comes with 429 Too Many Requests instead: the customer has used up
	// its limit, whichever task is asked.
	OverloadedQuota = "quota"
)

// Strip deletes all headers that begin with Prefix.
func Strip(h http.Header) {
	for name := range h {
		if len(name) >= len(Prefix) && strings.EqualFold(name[:len(Prefix)], Prefix) {
			delete(h, name)
		}
	}
}

// EncodeKey gives a key a form that fits a header: what is not printable ASCII,
// and percent signs, as % and two hexadecimal digits.
func EncodeKey(key string) string {
	n := 0
	for i := range len(key) {
		if !plain(key[i]) {
			n++
		}
	}
	if n == 0 {
		return key
	}
	const digits = "0123456789ABCDEF"
	b := make([]byte, 0, len(key)+2*n)
	for i := range len(key) {
		if c := key[i]; plain(c) {
			b = append(b, c)
		} else {
			b = append(b, '%', digits[c>>4], digits[c&15])
		}
	}
	return string(b)
}

func plain(c byte) bool { return c > ' ' && c < 0x7f && c != '%' }

// DecodeKey reads what EncodeKey wrote. It is not ok when the text is none of
// that, or the key longer than MaxLen.
func DecodeKey(text string) (key string, ok bool) {
	if len(text) > 3*MaxLen {
		return "", false
	}
	var b []byte
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '%':
			if i+2 >= len(text) {
				return "", false
			}
			hi, lo := nibble(text[i+1]), nibble(text[i+2])
			if hi < 0 || lo < 0 {
				return "", false
			}
			if b == nil {
				b = append(make([]byte, 0, len(text)), text[:i]...)
			}
			b = append(b, byte(hi<<4|lo))
			i += 2
		case !plain(c):
			return "", false
		case b != nil:
			b = append(b, c)
		}
	}
	if key = text; b != nil {
		key = string(b)
	}
	return key, len(key) <= MaxLen
}

func nibble(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
