package sidecar

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/backoff"
	"github.com/slicer-project/slicer/cmd/internal/run"
	"github.com/slicer-project/slicer/slicelet"
)

const (
	// maxStreams bounds how many read changes at a time, and maxBehind how many changes one of
	// them may be behind before it is cut off.
	maxStreams = 16
	maxBehind  = 64
	// webhookLimit is how long one call of the webhook may take, writeLimit one line of a stream.
	webhookLimit = 30 * time.Second
	writeLimit   = 10 * time.Second
	// Between calls that have failed it waits for firstWait and up to longestWait.
	firstWait   = 100 * time.Millisecond
	longestWait = 5 * time.Second
)

// Change is what the server is told of its keys, as JSON.
type Change struct {
	Job  string `json:"job"`
	Task string `json:"task"`
	// Generation is slicelet.Change's.
	Generation assignment.Generation `json:"generation"`
	// Fresh: the task owns nothing of what it was told to own before.
	Fresh bool `json:"fresh,omitempty"`
	// Arrived and Departed are slicelet.Change's.
	Arrived  []Range `json:"arrived,omitempty"`
	Departed []Range `json:"departed,omitempty"`
}

// Range is slicelet.Range's. Start and End are slice keys in text form, and End is not in it.
type Range struct {
	Start assignment.SliceKey `json:"start"`
	End   assignment.SliceKey `json:"end"`
	From  []Task              `json:"from,omitempty"`
	To    []Task              `json:"to,omitempty"`
}

// Task is one that owned keys, or owns them now.
type Task struct {
	Name    string `json:"name"`
	Address string `json:"address"`
}

// teller tells changes of ownership.
type teller struct {
	s *Sidecar

	mu         sync.Mutex
	owned      []assignment.Slice // as it was told last
	generation assignment.Generation
	current    *listener
	streams    map[chan []byte]struct{}
	closed     bool
}

func (t *teller) init(s *Sidecar) { t.s, t.streams = s, make(map[chan []byte]struct{}) }

// listener is an incarnation's.
type listener struct {
	t      *teller
	life   *life
	ctx    context.Context // ends with the server
	cancel context.CancelFunc
	fresh  bool
}

func (t *teller) begin(l *life) slicelet.Listener {
	n := &listener{t: t, life: l, fresh: true}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	t.mu.Lock()
	defer t.mu.Unlock()
	t.current = n
	return n
}

// end is called when an incarnation ends: nothing of it is owned any more.
func (t *teller) end(l *life) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.current
	if n == nil || n.life != l {
		return
	}
	n.cancel()
	t.current = nil
	if len(t.owned) > 0 {
		c := t.changeLocked()
		c.Departed = ranges(t.owned)
		t.owned = nil
		t.publishLocked(c)
	}
}

// close ends the streams, when they have told what there is to tell.
func (t *teller) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for ch := range t.streams {
		delete(t.streams, ch)
		close(ch)
	}
}

func (t *teller) changeLocked() *Change {
	return &Change{Job: t.s.cfg.Slicelet.Job, Task: t.s.life.Load().name(t.s), Generation: t.generation}
}

// name is the task's.
func (l *life) name(s *Sidecar) string {
	if l == nil {
		return s.cfg.Slicelet.Task
	}
	return l.slicelet.Task()
}

// SlicesChanged is slicelet.Listener's: it returns when the webhook has taken the change.
func (n *listener) SlicesChanged(ctx context.Context, c slicelet.Change) {
	said := &Change{Job: n.t.s.cfg.Slicelet.Job, Task: n.life.slicelet.Task(), Generation: c.Generation, Fresh: n.fresh, Arrived: rangesOf(c.Arrived), Departed: rangesOf(c.Departed)}
	n.fresh = false
	n.t.take(n, c, said)
	if n.t.s.cfg.Webhook == "" {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(n.ctx, cancel)()
	n.t.s.call(ctx, said)
}

// take remembers what is owned, and tells the streams.
func (t *teller) take(n *listener, c slicelet.Change, said *Change) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current != n {
		return
	}
	t.generation = c.Generation
	for _, r := range c.Departed {
		t.owned = without(t.owned, r.Slice)
	}
	for _, r := range c.Arrived {
		t.owned = with(without(t.owned, r.Slice), r.Slice)
	}
	t.publishLocked(said)
}

func (t *teller) publishLocked(c *Change) {
	if len(t.streams) == 0 {
		return
	}
	line, _ := json.Marshal(c) // it has nothing that could fail
	for ch := range t.streams {
		select {
		case ch <- line:
		default: // it does not read
			delete(t.streams, ch)
			close(ch)
		}
	}
}

// without is the slices, in order and apart, less what x has.
func without(all []assignment.Slice, x assignment.Slice) (out []assignment.Slice) {
	for _, s := range all {
		both, ok := s.Intersect(x)
		if !ok {
			out = append(out, s)
			continue
		}
		if s.Start < both.Start {
			out = append(out, assignment.Slice{Start: s.Start, End: both.Start})
		}
		if both.End < s.End {
			out = append(out, assignment.Slice{Start: both.End, End: s.End})
		}
	}
	return out
}

// with is the slices with one that has nothing in common with them.
func with(all []assignment.Slice, x assignment.Slice) (out []assignment.Slice) {
	add := func(s assignment.Slice) {
		if n := len(out); n > 0 && out[n-1].End == s.Start {
			out[n-1].End = s.End
			return
		}
		out = append(out, s)
	}
	for _, s := range all {
		if x.Start < s.Start && x.End > x.Start {
			add(x)
			x.End = x.Start
		}
		add(s)
	}
	if x.End > x.Start {
		add(x)
	}
	return out
}

func ranges(all []assignment.Slice) (out []Range) {
	for _, s := range all {
		out = append(out, Range{Start: s.Start, End: s.End})
	}
	return out
}

func rangesOf(all []slicelet.Range) (out []Range) {
	for _, r := range all {
		out = append(out, Range{Start: r.Start, End: r.End, From: tasks(r.From), To: tasks(r.To)})
	}
	return out
}

func tasks(all []assignment.Task) (out []Task) {
	for _, t := range all {
		out = append(out, Task{t.Name, t.Address})
	}
	return out
}

// call sends a change to the webhook until it takes it, or refuses it by a code of 4xx, or ctx ends.
func (s *Sidecar) call(ctx context.Context, c *Change) {
	body, _ := json.Marshal(c)
	for wait := firstWait; ; wait = min(2*wait, longestWait) {
		code, err := s.post(ctx, body)
		switch {
		case err == nil && code < 300:
			s.metrics.told.WithLabelValues("told").Inc()
			return
		case ctx.Err() != nil:
			return
		case err == nil && code >= 400 && code < 500:
			s.metrics.told.WithLabelValues("refused").Inc()
			s.log.Error("the webhook refuses a change of ownership", "code", code)
			return
		case err == nil:
			err = fmt.Errorf("it answers %d", code)
		}
		s.metrics.told.WithLabelValues("failed").Inc()
		s.log.Warn("the webhook has not taken a change of ownership", "error", err, "again_in", wait)
		backoff.Sleep(ctx, backoff.Jitter(wait))
	}
}

func (s *Sidecar) post(ctx context.Context, body []byte) (code int, err error) {
	ctx, cancel := context.WithTimeout(ctx, webhookLimit)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.cfg.Webhook, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := s.probe.client.Do(r)
	if err != nil {
		return 0, err
	}
	_, _ = io.CopyN(io.Discard, resp.Body, 4<<10)
	return resp.StatusCode, resp.Body.Close()
}

// subscribe returns what the task owns, and what comes after that, until the channel is closed.
func (t *teller) subscribe() (first []byte, ch chan []byte, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.streams) >= maxStreams {
		return nil, nil, false
	}
	c := t.changeLocked()
	c.Fresh, c.Arrived = true, ranges(t.owned)
	first, _ = json.Marshal(c)
	ch = make(chan []byte, maxBehind)
	if t.closed {
		close(ch)
	} else {
		t.streams[ch] = struct{}{}
	}
	return first, ch, true
}

func (t *teller) unsubscribe(ch chan []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.streams, ch)
}

// Ownership serves a stream of changes to what is on this machine: JSON lines, or server-sent
// events if that is what it accepts. The first one has all that the task owns.
func (s *Sidecar) Ownership(w http.ResponseWriter, r *http.Request) {
	if !run.Local(r) {
		http.Error(w, "only for what is on this machine, by way of loopback", http.StatusForbidden)
		return
	}
	line, ch, ok := s.tell.subscribe()
	if !ok {
		http.Error(w, fmt.Sprintf("%d streams are open", maxStreams), http.StatusServiceUnavailable)
		return
	}
	defer s.tell.unsubscribe(ch)
	before, after := "", "\n"
	w.Header().Set("Content-Type", "application/jsonl")
	if strings.Contains(r.Header.Get("Accept"), "text/event-stream") {
		before, after = "data: ", "\n\n"
		w.Header().Set("Content-Type", "text/event-stream")
	}
	out := http.NewResponseController(w)
	for {
		_ = out.SetWriteDeadline(time.Now().Add(writeLimit))
		if _, err := fmt.Fprintf(w, "%s%s%s", before, line, after); err != nil || out.Flush() != nil {
			return
		}
		_ = out.SetWriteDeadline(time.Time{})
		select {
		case line, ok = <-ch:
			if !ok {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}
