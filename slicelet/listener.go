package slicelet

import "github.com/slicer-project/slicer/assignment"

// Listener is told which keys the task comes to own and which it loses, to fetch
// their state and to drop it (Slicer paper, section 2.2).
type Listener interface {
	// SlicesChanged names key ranges, in order and apart; splits and merges of
	// slices that stay change nothing. Keys that were lost and have come back since
	// the last call, so that another task may have owned them meanwhile, are in
	// both: drop what is known of them, then fetch it anew.
	//
	// Calls are serial, from one goroutine. They may block: that holds up neither
	// assignments nor requests, and what changes meanwhile comes merged in the next
	// call. Ownership may therefore be ahead of what the listener knows. It must not
	// call Close.
	//
	// In consistent mode a lost lease is told at the local deadline,
	// lease.Config.Margin before another task can own the keys: a call that takes
	// longer learns it late. Handles know at once.
	SlicesChanged(arrived, departed []assignment.Slice)
}

// tell calls the listener until the slicelet closes.
func (s *Slicelet) tell(l Listener) {
	told := emptyView()
	for {
		select {
		case <-s.tellNow:
		case <-s.stop:
			return
		}
		v := s.view.Load()
		arrived, departed := v.since(told)
		told = v
		if len(arrived)+len(departed) > 0 {
			l.SlicesChanged(arrived, departed)
		}
	}
}

// since says what has changed from an earlier view to v.
func (v *view) since(before *view) (arrived, departed []assignment.Slice) {
	if v.epoch != before.epoch {
		arrived, _ = changes(nil, v.runs)
		_, departed = changes(before.runs, nil)
		return arrived, departed
	}
	return changes(before.runs, v.runs)
}
