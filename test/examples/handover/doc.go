// Package handover keeps a map in the memory of a job's tasks and moves its entries
// with their keys, through drains and restarts, without losing an acknowledged write.
// It is an example of slicelet.Listener; server and client are the programs.
//
// A range of keys is in one server's hands at a time, which need not be its owner:
//
//   - The server that has a range serves it, reads and writes, until another server takes
//     it. Any other refuses, and the client asks the owner again.
//   - A server that comes to own a range asks those from which it comes (Range.From),
//     and all other tasks if they do not have all of it. Until it has it, requests wait.
//   - To be asked for a range freezes it (Take): it is neither read nor written any
//     more. Once the new owner has the entries, it says so (Drop), and the range is its
//     own from then on. That is the moment at which the range changes hands.
//   - Each of the two carries the generation in which the asker owns the range. A server
//     remembers the newest by which it was asked, and refuses older ones. So an owner
//     that is late takes nothing back, and one that has found a range in no server's
//     hands can begin with it empty: no earlier owner can still come by it.
//   - A server that drains stays until all that it had has been taken.
//
// So it does not matter that two tasks of a job in affinity mode may both believe that
// they own a key. In consistent mode, a server besides refuses keys that it does not
// own: there a range that has departed is not served while it is still here.
//
// What a server that crashes has in memory is lost, and no protocol can change that: its
// keys are missing then. A service that cannot bear that writes to a store as well (see
// Handle.FencingToken), or to another task.
package handover
