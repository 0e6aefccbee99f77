// Package assigner decides which task owns which slices of a job: signals in,
// assignments out (Slicer paper, section 4.1).
//
// An Assigner serves two gRPC services: AssignerService, by which Distributors
// bring it the health and load of tasks and fetch assignments, and AdminService
// for operators. It keeps everything that lasts in a store:
//
//	a, err := assigner.New(assigner.Config{
//		ID: "assigner-1", Zone: "eu-1", Address: "10.0.0.7:4700",
//		Stores: []assigner.NamedStore{{Backend: st}},
//	})
//	server := grpc.NewServer(assigner.ServerOptions()...)
//	a.Register(server)
//
// # Several assigners
//
// Any number of assigners run side by side on one store. Each registers there while it
// has a Distributor; for each job one of them is preferred, one of the job's zone if
// there is any, and takes the decisions. The others follow what is stored and serve it on
// request. Preference is a hint: when two assigners take themselves for preferred, the
// store's compare-and-swap makes them act as one, slower. An assigner that dies is
// replaced when its registration has run out, after some seconds.
//
// # Consistent mode
//
// A store with NamedStore.Leases serves jobs in consistent mode too (section 4.5). The
// assigner holds one session there, opened when the first such job needs it, and for each
// of these jobs that it is preferred for the job lease. Then it keeps to the order of
// package lease: read the store, complete the change that is under way, bring what is
// stored in force, and only then decide, store, and bring that in force. While a change
// is under way nothing is decided; what happens meanwhile is answered by the next one. A
// round that moves no keys waits for the balancing interval, since every slicelet has
// part in every change.
//
// Each step of a change compares the job lease, in the store of the leases, and so does each write of an
// assignment where the store can (store.Fencer). A deposed assigner changes nothing, and
// another goes on from whatever step it has left behind. Between two changes only
// one assignment is written, so the generations that the leases name, of which there
// are two at most, are the two newest: a store that keeps two has what
// slicelets need.
//
// # Overrides
//
// What operators order (freeze, pin, exclude, rollback) is kept with the job, as
// store.Overrides. Whichever assigner is asked writes it, by compare-and-swap; the
// preferred one sees it there and adopts it, and so does its successor. Each assignment
// is stored on condition that the overrides are those under which it was decided, so that
// nothing decided before an order is stored after it, and together with its entry in the
// job's history.
//
// # What it promises
//
//   - Generations of a job strictly increase, across assigners and a store that
//     was wiped, and no assignment is stored but one that an assigner decided whole.
//   - In consistent mode, no generation comes in force but the stored one, whole,
//     with one owner a key; and none again.
//   - A task is declared dead by the rules of package membership, and by no other.
//   - A job whose store fails or hangs holds, says so, and harms no other job.
//   - Every generation, every decision and every round that was left out says why:
//     in the log, in metrics and in InspectJob; generations and orders also in the
//     history, as far back as the job's config says.
//
// # How it is made
//
// The decisions are pure and live in packages of their own: membership (which tasks there
// are), generate (what to do when), downstream (what Distributors say and are told),
// preference (which assigner decides), clientindex (which index each client has), and
// loadbalance (which task owns what). This package is the shell: one goroutine a job
// carries out what that job's generate.Core asks for, two a Distributor read and write
// its stream, and a few a store watch it.
package assigner
