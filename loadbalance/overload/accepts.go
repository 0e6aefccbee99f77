package overload

import (
	"math"
	"time"
)

const (
	// acceptsK is how many requests are sent for each that is accepted, if so many are asked
	// for (Site Reliability Engineering, chapter 21, "Client-Side Throttling").
	acceptsK = 2
	// acceptsSpare is how many are sent besides, within acceptsFade: what a client asks that
	// asks rarely says too little (the adaptive throttler of gRPC-Go's route look-up has as
	// many).
	acceptsSpare = 8
	// acceptsFade is the time within which all but 1/e of what was counted is forgotten. In
	// the book it is a window of two minutes: since what is not sent counts, too, a client
	// then holds requests back for minutes after the server has room again.
	acceptsFade = 3 * time.Second
)

// Accepts is what a client knows of a server that refuses requests and does not say which: how
// many it has asked for and how many were accepted, lately. By it the client holds some back,
// so that the server is sent about twice as many as it accepts. The zero value knows nothing.
// Times may be counted from anywhere, and do not go back.
type Accepts struct {
	requests, accepted float64
	at                 time.Duration
}

func (a *Accepts) fade(now time.Duration) {
	keep := math.Exp(-float64(max(now-a.at, 0)) / float64(acceptsFade))
	a.requests, a.accepted, a.at = a.requests*keep, a.accepted*keep, now
}

// Count counts a request that has been answered, or that was held back, which is not accepted.
func (a *Accepts) Count(now time.Duration, accepted bool) {
	a.fade(now)
	if a.requests++; accepted {
		a.accepted++
	}
}

// Hold is the share of requests to be held back.
func (a *Accepts) Hold(now time.Duration) float64 {
	a.fade(now)
	return max(0, (a.requests-acceptsK*a.accepted-acceptsSpare)/(a.requests+1))
}

// Quiet reports whether nearly all is forgotten, or accepted, so that nothing is lost if all is.
func (a *Accepts) Quiet(now time.Duration) bool {
	a.fade(now)
	return a.requests < .1 || a.accepted > .95*a.requests && a.requests > 1
}
