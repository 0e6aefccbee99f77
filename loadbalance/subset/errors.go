package subset

import (
	"fmt"
	"math"
)

// A FieldError reports an argument outside its allowed range.
type FieldError struct {
	Field string // the argument or struct field, such as "Size"
	Value int    // what was given
	Want  string // what is allowed, such as "1 to 64"
}

func (e *FieldError) Error() string {
	return fmt.Sprintf("subset: %s is %d, want %s", e.Field, e.Value, e.Want)
}

// checkRange returns a *FieldError unless low <= value <= high.
func checkRange(field string, value, low, high int) error {
	if value >= low && value <= high {
		return nil
	}
	want := fmt.Sprintf("%d to %d", low, high)
	if high == math.MaxInt {
		want = fmt.Sprintf("%d or more", low)
	}
	return &FieldError{Field: field, Value: value, Want: want}
}
