// Package assignment holds the nouns of Slicer: slice keys, slices, tasks,
// generations, job configs, and the Assignment that ties them together.
//
// An application key is hashed into a 63-bit SliceKey. An Assignment cuts that
// space into slices, in order and without gap or overlap, and gives each slice
// one or more tasks. It is built and validated in one place, never changes
// afterwards, and is shared by all its readers without a lock:
//
//	replicas := a.Lookup(assignment.KeyOf("user/4711"))
//	for task := range replicas.All() {
//		fmt.Println(task.Name, task.Address)
//	}
//
// Assignments of one job follow one another by Generation: Successor builds the
// next from a placement of slices on tasks, Diff says what has changed between
// two, and Apply carries that out, so that a change of one percent of the slices
// costs about one percent of the bytes. Of many slices Apply copies none that
// stays: what it makes refers to what it was made of, until either something
// needs slices by number or too much has changed, and slices are in columns again.
//
// # The hash
//
// A slice key is XXH64, with seed 0, of the application key's bytes, shifted
// right by one. Any language can compute it; these are its test vectors:
//
//	77a36d9ba8ec74cc  ""
//	69276278d4c6372d  "a"
//	3ba63f24a5990931  "user/4711"
//	2e2dc861a71bb685  "0123456789abcdef"
//	46d4ccbb8ad2571e  "Grüße, 世界"
//	0592169b0fed38de  "The quick brown fox jumps over the lazy dog"
//	76a826e05dea1432  "0123456789" eleven times
//
// # Promises
//
// Everything here is pure: no clock, no goroutine, no I/O. Everything is safe
// for concurrent use unless it says otherwise. Whatever New, Successor and Apply
// are given, they answer with a valid value or with an error that names the field,
// and never panic.
package assignment
