package cluster

import (
	"math/bits"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
)

// event is something that happens at a time. Of those at one time the order is that of
// key, so that it does not depend on which was asked first.
type event struct {
	at   time.Duration
	key  uint64
	seq  uint64
	what happening
}

type happening interface{ happen() }

// call is a function that is called.
type call func()

func (f call) happen() { f() }

func (x *event) before(y *event) bool {
	if x.at != y.at {
		return x.at < y.at
	}
	if x.key != y.key {
		return x.key < y.key
	}
	return x.seq < y.seq
}

// A slot is about four milliseconds: most events are within all of them.
const slotBits, slots = 24, 1 << 6

// events are those to come. The near ones stand in a ring of slots, which are short;
// the others in a heap.
type events struct {
	near [slots][]event
	full [(slots + 63) / 64]uint64 // slots with an event
	now  int64                     // slot of the event taken out last
	far  heap
}

// rooms are empty queues of worlds that have ended: there is room in them.
var rooms = sync.Pool{New: func() any { return new(events) }}

// reset takes out all that is left, and forgets what was.
func (q *events) reset() {
	for i, in := range q.near {
		clear(in[:cap(in)])
		q.near[i] = in[:0]
	}
	clear(q.far[:cap(q.far)])
	q.far = q.far[:0]
	clear(q.full[:])
	q.now = 0
}

func slotOf(at time.Duration) int64 { return int64(at) >> slotBits }

// push takes an event, which is not before the one taken out last.
func (q *events) push(at time.Duration, key, seq uint64, what happening) {
	e := event{at, key, seq, what}
	if s := slotOf(at); s-q.now < slots {
		s %= slots
		if q.near[s] == nil {
			q.near[s] = make([]event, 0, 8)
		}
		q.near[s] = append(q.near[s], e)
		q.full[s/64] |= 1 << (s % 64)
	} else {
		q.far.push(e)
	}
}

// pop takes out the first, unless that is later than until.
func (q *events) pop(until time.Duration) (at time.Duration, what happening, ok bool) {
	slot, k := q.nearest()
	if len(q.far) > 0 && (slot < 0 || q.far[0].before(&q.near[slot][k])) {
		if at, what = q.far[0].at, q.far[0].what; at > until {
			return 0, nil, false
		}
		q.far.pop()
	} else {
		if slot < 0 {
			return 0, nil, false
		}
		in := q.near[slot]
		if at, what = in[k].at, in[k].what; at > until {
			return 0, nil, false
		}
		last := len(in) - 1
		if k != last {
			in[k] = in[last]
		}
		if q.near[slot] = in[:last]; last == 0 {
			q.full[slot/64] &^= 1 << (slot % 64)
		}
	}
	q.now = slotOf(at)
	return at, what, true
}

// nearest is where the first of the near ones is: slot -1 if there is none.
func (q *events) nearest() (slot int, k int) {
	begin := int(q.now % slots)
	word, mask := begin/64, ^uint64(0)<<(begin%64)
	for range len(q.full) + 1 { // the first word twice, for what is before begin
		if set := q.full[word] & mask; set != 0 {
			slot = word*64 + bits.TrailingZeros64(set)
			in := q.near[slot]
			for i := 1; i < len(in); i++ {
				if in[i].before(&in[k]) {
					k = i
				}
			}
			return slot, k
		}
		word, mask = (word+1)%len(q.full), ^uint64(0)
	}
	return -1, 0
}

// heap has four below each.
type heap []event

func (q *heap) push(e event) {
	*q = append(*q, e)
	h, i := *q, len(*q)-1
	for i > 0 {
		up := (i - 1) / 4
		if !e.before(&h[up]) {
			break
		}
		h[i] = h[up]
		i = up
	}
	h[i] = e
}

func (q *heap) pop() {
	h := *q
	e := h[len(h)-1]
	h = h[:len(h)-1]
	*q = h
	i := 0
	for 4*i+1 < len(h) {
		at := 4*i + 1
		below := h[at:min(at+4, len(h))]
		least := 0
		for k := 1; k < len(below); k++ {
			if below[k].before(&below[least]) {
				least = k
			}
		}
		if !below[least].before(&e) {
			break
		}
		h[i] = below[least]
		i = at + least
	}
	if len(h) > 0 {
		h[i] = e
	}
}

// Events come out in order, whenever they are put in.
func TestQueue(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	var q events
	var all []event // those in q
	var now time.Duration
	seq := uint64(0)
	for range 20_000 {
		if rng.IntN(2) == 0 && len(all) < 300 {
			d := time.Duration(rng.Int64N(int64(time.Duration(1) << rng.IntN(34)))) // up to 17 s, most at once
			e := event{at: now + d, key: rng.Uint64N(3), seq: seq}
			seq++
			q.push(e.at, e.key, e.seq, call(func() {
				if now != e.at {
					t.Fatalf("%s happens at %s", e.at, now)
				}
				i := slices.IndexFunc(all, func(o event) bool { return o.seq == e.seq })
				if slices.ContainsFunc(all, func(o event) bool { return o.before(&e) }) {
					t.Fatal("there is one before it")
				}
				all = slices.Delete(all, i, i+1)
			}))
			all = append(all, e)
			continue
		}
		until := now + time.Duration(rng.Int64N(int64(2*time.Second)))
		at, what, ok := q.pop(until)
		if !ok {
			for _, e := range all {
				if e.at <= until {
					t.Fatalf("%s is not taken out at %s", e.at, until)
				}
			}
			continue
		}
		now = at
		what.happen()
	}
	if len(all) == 0 || now < 20*time.Second {
		t.Errorf("%d events are left at %s: the test does too little", len(all), now)
	}
}
