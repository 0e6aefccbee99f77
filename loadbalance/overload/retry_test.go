package overload

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// oracle keeps every event, and counts those of the last seconds each time.
type oracle struct {
	limits            RetryLimits
	requests, retries []int64 // seconds
}

func within(events []int64, now int64, over time.Duration) (n int) {
	for _, at := range events {
		if now-at < int64(over/time.Second) {
			n++
		}
	}
	return n
}

func (o *oracle) retry(now int64) bool {
	n := within(o.retries, now, RetryWindow) + 1
	if float64(n) > o.limits.Ratio*float64(within(o.requests, now, RetryWindow)) &&
		within(o.retries, now, o.limits.FloorOver)+1 > o.limits.Floor {
		return false
	}
	o.retries = append(o.retries, now)
	return true
}

// TestRetryBudget: against the oracle, in histories of bursts and of silence; and
// whatever the history, retries are at most what both limits together allow, of all
// requests and in any window.
func TestRetryBudget(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		limits := []RetryLimits{OtherTasks, Ownership, {Ratio: .5, Floor: 3, FloorOver: 4 * time.Second}, {Floor: 1, FloorOver: time.Second}}[seed%4]
		b, o := NewRetryBudget(limits), oracle{limits: limits}
		now := time.Duration(r.Int64N(int64(time.Hour)))
		began := now
		mix := r.Float64()
		for range 2000 {
			switch r.IntN(100) {
			case 0:
				now += time.Duration(r.Int64N(int64(30 * time.Second)))
				mix = r.Float64()
			default:
				now += time.Duration(r.Int64N(int64(50 * time.Millisecond)))
			}
			second := int64(now / time.Second)
			if r.Float64() < mix {
				b.Request(now)
				o.requests = append(o.requests, second)
				continue
			}
			if got, want := b.Retry(now), o.retry(second); got != want {
				t.Fatalf("seed %d, after %s: %t, want %t", seed, now-began, got, want)
			}
			// A retry may outlive the requests that it was allowed for by a window.
			most := limits.Ratio*float64(within(o.requests, second, 2*RetryWindow)) + float64(limits.Floor)*float64(RetryWindow/limits.FloorOver+1)
			if n := within(o.retries, second, RetryWindow); float64(n) > most {
				t.Fatalf("seed %d: %d retries in a window of at most %.1f", seed, n, most)
			}
		}
		spans := float64((now-began)/limits.FloorOver + 2)
		if most := limits.Ratio*float64(len(o.requests)) + float64(limits.Floor)*spans; float64(len(o.retries)) > most {
			t.Errorf("seed %d: %d retries of %d requests in %s", seed, len(o.retries), len(o.requests), now-began)
		}
	}
}

// TestOtherTasks: 1.1 attempts a request, and a quiet client has some.
func TestOtherTasks(t *testing.T) {
	for _, rate := range []int{1, 10, 100, 1000} { // a second
		b := NewRetryBudget(OtherTasks)
		requests, retries := 0, 0
		for i := range 60 * rate {
			now := time.Duration(i) * time.Second / time.Duration(rate)
			b.Request(now)
			requests++
			for b.Retry(now) { // as many as it may
				retries++
			}
		}
		if want := max(requests/10, 60); retries > want || retries < want*9/10 {
			t.Errorf("at %d/s: %d retries of %d requests, want %d", rate, retries, requests, want)
		}
	}
}

// TestTimeGoesBackwards: it is taken to stand still, and nothing is counted twice.
func TestTimeGoesBackwards(t *testing.T) {
	b := NewRetryBudget(OtherTasks)
	for range 1000 {
		b.Request(100 * time.Second)
	}
	n := 0
	for now := 100 * time.Second; now > 0; now -= time.Second {
		for b.Retry(now) {
			n++
		}
	}
	if n != 100 {
		t.Errorf("%d retries, want 100", n)
	}
}

func BenchmarkRequest(b *testing.B) {
	budget := NewRetryBudget(OtherTasks)
	b.ReportAllocs()
	for i := range b.N {
		budget.Request(time.Duration(i) * time.Microsecond)
	}
}

func ExampleRetryBudget() {
	b := NewRetryBudget(OtherTasks)
	for range 500 {
		b.Request(0)
	}
	n := 0
	for b.Retry(0) {
		n++
	}
	fmt.Println(n)
	// Output: 50
}
