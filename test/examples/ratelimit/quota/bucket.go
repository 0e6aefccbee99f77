package quota

import (
	"slices"
	"time"
)

// Bucket is the owner's account of a limit.
type Bucket struct {
	limit    Limit
	level    float64 // what may be let in, by the reports so far
	at       time.Duration
	learning time.Duration // until when
	accounts []account
	empty    bool // no Share has ever had an account
}

// account is what is known of one Share.
type account struct {
	session           uint64
	rate, tokens, cap float64 // as of at
	at                time.Duration
	demand            float64
	total             uint64
	charged           float64 // how much of its use the level has been lowered by
}

// out is what the Share may have let in by now that it has not reported.
func (a *account) out(now time.Duration) float64 {
	return min(max(a.cap, a.tokens), a.tokens+a.rate*(now-a.at).Seconds())
}

// NewBucket makes the Bucket of a limit that nothing has been asked of, or, if the
// limit's last owner may have died, one that learns until then from what Shares say. It
// learns as well if the first of them has a part: an owner has lent that.
func NewBucket(now time.Duration, l Limit, learning time.Duration) Bucket {
	b := Bucket{limit: l, at: now, learning: learning, empty: true}
	if now >= learning {
		b.level = l.capacity(1)
	}
	return b
}

// advance fills the Bucket, and closes the accounts of Shares that do not report.
func (b *Bucket) advance(now time.Duration) {
	if now > b.at {
		b.level += b.limit.Rate * (now - b.at).Seconds()
		b.at = now
	}
	b.accounts = slices.DeleteFunc(b.accounts, func(a account) bool {
		gone := now-a.at > ReclaimAfter
		if gone {
			b.level -= max(0, a.out(now)) // it may have let that in
		}
		return gone
	})
	b.overflow(now)
}

// overflow bounds the level: what Shares may use and have not reported yet is not there.
func (b *Bucket) overflow(now time.Duration) {
	most := b.limit.capacity(len(b.accounts))
	for i := range b.accounts {
		a := &b.accounts[i]
		most += min(a.rate, a.demand) * (now - a.at).Seconds()
	}
	b.level = min(b.level, most)
}

// Report takes the report of the Share that a frontend of this session has, and returns
// its next part.
func (b *Bucket) Report(now time.Duration, session uint64, r Report) Answer {
	b.limit = r.Limit
	b.advance(now)
	i := slices.IndexFunc(b.accounts, func(a account) bool { return a.session == session })
	if i < 0 {
		if i = b.open(now, session, r); i < 0 {
			return Answer{}
		}
	}
	a := &b.accounts[i]
	if r.Total >= a.total {
		b.charge(i, float64(r.Total-a.total))
	} else { // the frontend has forgotten the Share and made it anew
		b.charge(i, float64(r.Fresh))
	}
	a.total = r.Total
	b.level = max(b.level, -b.limit.capacity(len(b.accounts)))
	if r.Demand == 0 {
		b.accounts = slices.Delete(b.accounts, i, i+1)
		return Answer{}
	}
	a.rate, a.tokens, a.at, a.demand = r.Rate, r.Tokens, now, r.Demand
	b.overflow(now)
	return b.lend(now, i, now < b.learning)
}

// open opens the account of a Share that has none, unless it wants no part.
func (b *Bucket) open(now time.Duration, session uint64, r Report) (i int) {
	// It may have been cut off for long, and others have not had what it has used.
	fresh := min(float64(r.Fresh), b.limit.capacity(1))
	if r.Demand == 0 {
		b.level -= fresh
		return -1
	}
	if b.empty && r.Rate > 0 {
		b.level, b.learning = 0, max(b.learning, now+LearnFor)
	}
	i = len(b.accounts)
	b.accounts = append(b.accounts, account{session: session, total: r.Total})
	switch {
	case now < b.learning && r.Rate > 0: // the last owner has lent it, so it was within the rate
		b.level += max(0, r.Tokens)
	case b.empty: // since when it has been asked is not known
		b.charge(i, min(fresh, max(0, b.level)))
	default:
		b.charge(i, fresh)
	}
	b.empty = false
	return i
}

func (b *Bucket) charge(i int, n float64) {
	b.level -= n
	b.accounts[i].charged += n
}

// lend gives the Share of an account its next part.
func (b *Bucket) lend(now time.Duration, i int, learns bool) Answer {
	a := &b.accounts[i]
	demand, lent, free := 0., 0., b.level
	for j := range b.accounts {
		other := &b.accounts[j]
		demand += other.demand
		if j != i {
			lent += other.rate
			free -= other.out(now)
		}
	}
	part := a.demand / demand
	a.cap = max(fewest, b.limit.capacity(len(b.accounts))*part)
	a.tokens = min(a.tokens, a.cap, max(free, 0))
	free -= a.tokens
	rate := b.limit.Rate * min(1, max(0, 1+free/(b.limit.Rate*repay.Seconds())))
	want := rate * part
	if learns {
		want = max(a.rate, learnPart*rate)
	}
	if !learns || a.rate == 0 {
		a.rate = min(want, max(0, rate-lent))
	}
	if free > 0 {
		a.tokens = min(a.cap, a.tokens+free*part)
	}
	return Answer{Rate: a.rate, Tokens: a.tokens, Cap: a.cap, Soon: a.rate < .9*want, Shared: len(b.accounts) > 1}
}

// Idle reports whether the Bucket is as good as a new one: no Share has a part, and it is
// full.
func (b *Bucket) Idle(now time.Duration) bool {
	b.advance(now)
	return len(b.accounts) == 0 && b.level >= b.limit.capacity(1)
}

// State is a Bucket's on its way to another owner.
type State struct {
	Limit  Limit
	Level  float64
	Shares []ShareState
}

// ShareState is a Bucket's account of one Share.
type ShareState struct {
	Session                   uint64
	Rate, Tokens, Cap, Demand float64
	Total                     uint64
	Age                       time.Duration // how long ago it reported
}

// Valid reports whether a state can be one of a Bucket.
func (s State) Valid() bool {
	if s.Limit.Validate() != nil || !finite(s.Level) {
		return false
	}
	seen := make(map[uint64]bool, len(s.Shares))
	for _, h := range s.Shares {
		r := Report{Limit: s.Limit, Demand: h.Demand, Rate: h.Rate, Tokens: h.Tokens}
		if !r.Valid() || !(Answer{Cap: h.Cap}).Valid() || h.Age < 0 || h.Age > time.Hour || seen[h.Session] {
			return false
		}
		seen[h.Session] = true
	}
	return true
}

// State is what the limit's next owner has to know.
func (b *Bucket) State(now time.Duration) State {
	b.advance(now)
	s := State{Limit: b.limit, Level: b.level, Shares: make([]ShareState, len(b.accounts))}
	for i, a := range b.accounts {
		s.Shares[i] = ShareState{a.session, a.rate, a.tokens, a.cap, a.demand, a.total, now - a.at}
	}
	return s
}

// Merge adds what the limit's last owner knew to a Bucket that has been made since, by the
// reports of Shares that have come here first.
func (b *Bucket) Merge(now time.Duration, s State) {
	b.advance(now)
	b.learning, b.empty = 0, false
	b.level = s.Level
	for _, h := range s.Shares {
		at := now - h.Age
		i := slices.IndexFunc(b.accounts, func(a account) bool { return a.session == h.Session })
		switch {
		case i < 0:
			b.accounts = append(b.accounts, account{session: h.Session, rate: h.Rate, tokens: h.Tokens, cap: h.Cap, at: at, demand: h.Demand, total: h.Total})
		case b.accounts[i].total > h.Total: // it has reported here since
			b.accounts[i].charged = float64(b.accounts[i].total - h.Total)
		default:
			b.accounts[i].charged = 0
		}
	}
	for i := range b.accounts {
		b.level -= b.accounts[i].charged
	}
	b.level = max(b.level, -b.limit.capacity(len(b.accounts)))
}
