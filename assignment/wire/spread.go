package wire

import (
	"math"
	"time"
)

// SpreadBuckets is how many buckets a Spread has. The last one has no end.
const SpreadBuckets = 161

// SpreadBucket is the bucket of a Spread that a time falls into: bucket i ends at
// 2^(i/8) ms and includes its end, so that times are right to a tenth.
func SpreadBucket(d time.Duration) int {
	ms := float64(d) / float64(time.Millisecond)
	if ms <= 1 {
		return 0
	}
	return min(int(math.Ceil(8*math.Log2(ms))), SpreadBuckets-1)
}

// SpreadEnd is the time at which a bucket ends.
func SpreadEnd(bucket int) time.Duration {
	bucket = min(max(bucket, 0), SpreadBuckets-1)
	if bucket == SpreadBuckets-1 {
		return math.MaxInt64
	}
	return time.Duration(math.Exp2(float64(bucket)/8) * float64(time.Millisecond))
}
