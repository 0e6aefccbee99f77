package assignment_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
)

func TestNextGeneration(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	ms := assignment.Generation(now.UnixMilli())
	const day, minute = 24 * 3600 * 1000, 60 * 1000
	for _, tc := range []struct {
		name               string
		previous, reported assignment.Generation
		want               assignment.Generation
		refused            string
	}{
		{"first of a job", 0, 0, ms, ""},
		{"clock leads", ms - 5, ms - 7, ms, ""},
		{"idle for years", 17, 17, ms, ""},
		{"same millisecond", ms, ms, ms + 1, ""},
		{"hurried", ms + 40, ms, ms + 41, ""},
		{"wiped store", 0, ms + 1000, ms + 1001, ""},
		{"wiped store, now behind its subscribers", ms - 9, ms + 1000, ms + 1001, ""},
		{"stored a day ahead", ms + day, 0, ms + day + 1, ""},
		{"stored more than a day ahead", ms + day + 1, 0, ms + day + 2, "stored"},
		{"stored ahead, reported likewise", ms + 2*day, ms + 2*day, ms + 2*day + 1, "stored"},
		{"stored ahead, reported a little more", ms + 2*day, ms + 2*day + 5, ms + 2*day + 6, "stored"},
		{"stored ahead, reported absurd", ms + 2*day, math.MaxInt64, ms + 2*day + 1, "stored"},
		{"reported a minute ahead", ms - 3, ms + minute, ms + minute + 1, ""},
		{"reported more than a minute ahead", ms - 3, ms + minute + 1, ms, "reported"},
		{"reported of tomorrow", ms - 3, ms + day - 1, ms, "reported"},
		{"reported a minute ahead of a stored one that is ahead", ms + 10, ms + 10 + minute, ms + 11 + minute, ""},
		{"reported absurd", ms, math.MaxInt64, ms + 1, "reported"},
		{"reported negative", ms, math.MinInt64, ms + 1, ""},
	} {
		got, err := assignment.NextGeneration(tc.previous, tc.reported, now)
		if got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, got, tc.want)
		}
		if tc.refused == "" {
			if err != nil {
				t.Errorf("%s: %v", tc.name, err)
			}
		} else if !errors.Is(err, assignment.ErrAhead) || !strings.Contains(err.Error(), tc.refused+" generation ") {
			t.Errorf("%s: error %v, want ErrAhead for the %s generation", tc.name, err, tc.refused)
		}
		if got <= tc.previous {
			t.Errorf("%s: %d does not follow %d", tc.name, got, tc.previous)
		}
	}
}

// A clock set back to its epoch neither stops the numbers nor turns them back.
func TestNextGenerationOnResetClock(t *testing.T) {
	got, err := assignment.NextGeneration(1_700_000_000_000, 0, time.UnixMilli(0))
	if got != 1_700_000_000_001 || !errors.Is(err, assignment.ErrAhead) {
		t.Fatalf("%d, %v", got, err)
	}
	want := "generation more than a day ahead: stored generation 1700000000000 is 472222h13m20s ahead of the clock, 1970-01-01T00:00:00Z"
	if err.Error() != want {
		t.Errorf("error %q, want %q", err, want)
	}
}
