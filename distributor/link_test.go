package distributor

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
)

// An operator who starts a Distributor with a wrong address learns it from the log, and
// not once for each attempt.
func TestNotReachedIsSaidOnce(t *testing.T) {
	var out bytes.Buffer
	l := &link{d: &Distributor{}, log: slog.New(slog.NewTextHandler(&out, nil))}
	for range 3 {
		l.notReached(errors.New("connection refused"))
	}
	if got := out.String(); strings.Count(got, "level=WARN") != 1 || !strings.Contains(got, "connection refused") || strings.Count(got, "\n") != 1 {
		t.Errorf("three attempts in vain are told as\n%s", got)
	}
}
