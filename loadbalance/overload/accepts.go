package overload

import (
	"math"
	"time"
)

const (
	// acceptsK is how many requests are sent for each that is accepted, if so many are asked
	// for (Site Reliability Engineering, chapter 21, "Client-Side Throttling").
	acceptsK = 2
	// acceptsLast is what share of that is enough to hold back the last cohorts: what lies
	// between the two orders the cohorts.
	acceptsLast = .85
	// acceptsSpare is how many are sent besides, within acceptsFade: what a client asks that
	// asks rarely says too little (the adaptive throttler of gRPC-Go's route look-up has as
	// many).
	acceptsSpare = 8
	// acceptsFade is the time within which all but 1/e of what was counted is forgotten. In
	// the book it is a window of two minutes.
	acceptsFade = 3 * time.Second
	// acceptsRefused is the share of what was sent that must have been refused lately for
	// anything to be held back: requests that take long to be answered are not refused.
	acceptsRefused = .2
	// acceptsPause is after how many times the mean time between two requests that may be sent
	// the next one is sent, of the last cohorts, and 1 less of the first. Without it a client
	// whose last few were all refused by chance would be left with acceptsSpare.
	acceptsPause = 2.5
)

// Accepts is what a client knows of a server that refuses requests and does not say which: how
// many it has sent, and how many were accepted and refused, lately. By it the client holds some
// back, so that the server is sent about twice as many as it accepts. The zero value knows
// nothing. Times may be counted from anywhere, and do not go back. It is not safe for
// concurrent use.
//
// A request is sent as long as those that were sent are less than twice those that were
// accepted, which is as many as by Equation 21-1 of the book. There a request is held back by
// chance, by the share of all that were asked for which the server would refuse. Then what was
// held back goes on to count after the server has room, for four times acceptsFade after a
// flood of ten times as much; and what another server got instead would have to be counted as
// well. Here what is held back, or sent elsewhere, counts for nothing; and as there is no
// chance, several servers can be asked before one of them is chosen.
type Accepts struct {
	sent, accepted, refused float64
	// counted is how many of those that were sent count against those that were accepted:
	// what was sent while nothing was known to be refused does not keep others back later.
	counted float64
	at      time.Duration
	last    time.Duration // when one was sent
}

func (a *Accepts) fade(now time.Duration) {
	if now <= a.at {
		return
	}
	keep := math.Exp(-float64(now-a.at) / float64(acceptsFade))
	a.sent, a.accepted, a.refused, a.counted, a.at = a.sent*keep, a.accepted*keep, a.refused*keep, a.counted*keep, now
}

// most is how many may be sent by those that were accepted.
func (a *Accepts) most() float64 { return acceptsK*a.accepted + acceptsSpare }

// Sent counts a request that is sent.
func (a *Accepts) Sent(now time.Duration) {
	a.fade(now)
	a.sent++
	a.counted = min(a.counted+1, a.most()+1)
	a.last = now
}

// Answered counts a request that the server has answered.
func (a *Accepts) Answered(now time.Duration, accepted bool) {
	a.fade(now)
	if accepted {
		a.accepted++
	} else {
		a.refused++
	}
}

// Holds reports whether a request is to be held back. Of those of one criticality the last
// cohorts go first, so that of one user's all or none are sent.
func (a *Accepts) Holds(now time.Duration, p Priority) bool {
	a.fade(now)
	if a.refused < acceptsRefused*a.sent {
		return false
	}
	most, first := a.most(), (float64(p%Cohorts)+.5)/Cohorts
	return a.counted+1 > most*(acceptsLast+(1-acceptsLast)*first) && float64(now-a.last)*most < (acceptsPause-first)*float64(acceptsFade)
}

// Quiet reports whether nearly all is forgotten, or accepted, so that nothing is lost if all is.
func (a *Accepts) Quiet(now time.Duration) bool {
	a.fade(now)
	return a.sent+a.refused < .1 || a.refused < .05*a.accepted && a.accepted > 1
}
