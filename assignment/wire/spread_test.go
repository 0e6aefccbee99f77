package wire

import (
	"testing"
	"time"

	_ "github.com/slicer-project/slicer/assignment/seedtest" // rapid's seed
	"pgregory.net/rapid"
)

func TestSpreadBuckets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(-int64(time.Second), int64(30*time.Minute)).Draw(t, "d"))
		i := SpreadBucket(d)
		if i < 0 || i >= SpreadBuckets {
			t.Fatalf("%s is in bucket %d", d, i)
		}
		// The ends are as exact as a float64.
		const slack = 1e-9
		if end := SpreadEnd(i); float64(d) > float64(end)*(1+slack)+1 {
			t.Fatalf("%s is in bucket %d, which ends at %s", d, i, end)
		}
		if i > 0 && float64(d) < float64(SpreadEnd(i-1))*(1-slack)-1 {
			t.Fatalf("%s is in bucket %d, but the one before ends at %s", d, i, SpreadEnd(i-1))
		}
		if i > 0 && i < SpreadBuckets-1 && float64(SpreadEnd(i)) > 1.1*float64(d) {
			t.Fatalf("%s counts as %s", d, SpreadEnd(i))
		}
	})
	for _, bucket := range []int{-1, SpreadBuckets, 1 << 30} {
		if SpreadEnd(bucket) <= 0 {
			t.Errorf("bucket %d ends at %s", bucket, SpreadEnd(bucket))
		}
	}
}
