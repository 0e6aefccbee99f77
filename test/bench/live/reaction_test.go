package live

import "time"

// sample is how many requests each server had got by a time.
type sample struct {
	at   time.Time
	seen []int64
}

// imbalance is the largest over the mean of what servers got between two samples; 0 if
// none got anything.
func imbalance(from, to sample) float64 {
	var largest, sum int64
	for i := range to.seen {
		n := to.seen[i] - from.seen[i]
		largest = max(largest, n)
		sum += n
	}
	if sum == 0 {
		return 0
	}
	return float64(largest) * float64(len(to.seen)) / float64(sum)
}

// reading is the imbalance of the window that ends at a time.
type reading struct {
	at        time.Time
	imbalance float64
}

// readings are those of all whole windows.
func readings(samples []sample) (all []reading) {
	first := 0
	for _, s := range samples {
		for samples[first+1].at.Before(s.at) && s.at.Sub(samples[first+1].at) >= window {
			first++
		}
		if s.at.Sub(samples[first].at) >= window {
			all = append(all, reading{s.at, imbalance(samples[first], s)})
		}
	}
	return all
}

// reaction is the end of the first window below the limit from which on all
// windows stay below it, for as long as that has to be seen.
func reaction(all []reading) (at time.Time, ok bool) {
	since := -1
	for i, r := range all {
		switch {
		case r.imbalance >= limit:
			since = -1
		case since < 0:
			since = i
		}
		if since >= 0 && r.at.Sub(all[since].at) >= stay {
			return all[since].at, true
		}
	}
	return time.Time{}, false
}

// share is how many of the readings are at or above the limit.
func share(all []reading) float64 {
	n := 0
	for _, r := range all {
		if r.imbalance >= limit {
			n++
		}
	}
	return float64(n) / float64(max(len(all), 1))
}
