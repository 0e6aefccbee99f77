package overload

import "time"

const (
	// AttemptsWindow is over how long Attempts looks back.
	AttemptsWindow = 2 * time.Second
	// SampleEvery is how often it is to be given a sample: before each request that comes
	// so long after the last sample, or later.
	SampleEvery = 250 * time.Millisecond
	// retryRatio is how many retries there may be for each first attempt before they are
	// many: clients that keep a budget (OtherTasks) send .1 at most, and fewer than that
	// where not all tasks are overloaded.
	retryRatio = .05
	// fewRetries are never many: one client that asks rarely sends one a second.
	fewRetries = 2
	// maxSamples reach back over AttemptsWindow.
	maxSamples = int(AttemptsWindow/SampleEvery) + 2
)

// Attempts reports whether of what a server is sent much has been sent before. Then other
// servers must be as full as this one, so a server that has no room says that there should
// be no retry at all (Site Reliability Engineering, chapter 21, "Deciding to Retry"). The
// zero value has seen nothing. Times are since any moment, on a clock that does not go
// backwards; counts are of all first attempts, and of all retries, since any moment. It is
// not safe for concurrent use.
type Attempts struct {
	samples [maxSamples]sample
	n       int // samples ever
}

type sample struct {
	at           time.Duration
	first, again uint64
}

// Sample notes the counts at a time. What comes within SampleEvery of the one before is
// left out.
func (a *Attempts) Sample(now time.Duration, first, again uint64) {
	if a.n > 0 && now-a.samples[(a.n-1)%maxSamples].at < SampleEvery {
		return
	}
	a.samples[a.n%maxSamples] = sample{now, first, again}
	a.n++
}

// Many reports whether many of the attempts of the last AttemptsWindow, or of up to
// SampleEvery more, were retries.
func (a *Attempts) Many(now time.Duration, first, again uint64) bool {
	var from sample
	for i := a.n - 1; i >= max(a.n-maxSamples, 0); i-- {
		from = a.samples[i%maxSamples]
		// What came between two samples came within SampleEvery of the former.
		if i > 0 && a.samples[(i-1)%maxSamples].at+SampleEvery <= now-AttemptsWindow {
			break
		}
	}
	first, again = first-from.first, again-from.again
	return again > fewRetries && float64(again) > retryRatio*float64(first)
}
