// Package downstream decides what an assigner takes from its Distributors and tells them.
// It has no clock, goroutine, lock or network: messages, the time and answers of the store
// come in as values, messages and actions go out. Package assigner, which has the streams
// and the stores, carries them out. The same events give the same actions.
//
// A Job joins a job's generate.Core, which decides, with what each Distributor has said of
// the job and is to be told: assignments, encoded once for all that hold the same; the
// status; older assignments that are asked for; the indexes of clients. Job.Step takes an
// Event and returns the Actions that follow.
//
// A Stream is what is to be said on one Distributor's stream, a Reader makes events of what
// comes on it. What is sent is asked for when there is room for it, so that a slow stream
// costs no queue and gets what is newest by then:
//
//	a message comes    → Stream.Received, Reader.Read → Said, to the job that it is about
//	a job has news     → Notify  → Stream.Mark
//	a stream has room  → Stream.Pop: a message, or a job → Ready → Say, again and again
//	the job is due     → Tick    → Do: what its core asks for
//
// The transcripts in testdata show it event by event: first, deltas, slow and bases are
// good to begin with.
package downstream
