// Package slicelet tells a server which keys it owns, and Slicer how much load
// they bring (Slicer paper, section 2.2).
//
//	s, err := slicelet.New(slicelet.Config{
//		Job: "cache", Task: "cache-3", Address: "10.1.2.3:8080", Distributors: []string{"slicer:7000"},
//	})
//	if err != nil {
//		return err
//	}
//	defer s.Close()
//	http.HandleFunc("/profile", func(w http.ResponseWriter, r *http.Request) {
//		h := s.Handle(r.URL.Query().Get("user")) // counts the request
//		answer := lookUp(r)
//		if !h.AssignedContinuously() {
//			// the key is or was somebody else's: do not cache the answer
//		}
//		w.Write(answer)
//	})
//
// A server may ignore ownership and answer whatever arrives: then Slicer only
// makes it faster, by sending the same keys to the same server. IsAffinitized
// finds misrouted requests. Handle is for servers that keep state about their
// keys: AssignedContinuously says whether the key has been theirs without a
// break, and FencingToken proves it to a store.
//
// In affinity mode ownership is what the newest assignment says that has
// arrived here; for a moment, while an assignment spreads, two tasks may believe
// that they own a key. It survives the death of Slicer: the last assignment
// stays, and with a cache file even a task that is restarted while Slicer is dead
// goes on with its predecessor's slices. A slicelet owns nothing in a job in
// consistent mode, where at most one task may ever believe in a key: that takes
// leases as well as assignments.
//
// Shutting down: Drain, which moves the slices away and waits until clients have
// noticed; then stop serving; then Close.
package slicelet
