// Package assignment holds the nouns of Slicer: slice keys, slices, tasks,
// generations, job configs, and the Assignment that ties them together.
//
// An application key is hashed into a 63-bit SliceKey. An Assignment cuts that
// space into slices, in order and without gap or overlap, and gives each slice
// one or more tasks. It is built and validated in one place, never changes
// afterwards, and is shared by all its readers without a lock:
//
//	a := newest()
//	replicas := a.Lookup(assignment.KeyOf("user/4711"))
//	for task := range replicas.All() {
//		fmt.Println(task.Name, task.Address)
//	}
//
// Assignments of one job follow one another by Generation. Diff says what has
// changed between two of them and Apply carries it out, so that a change of one
// percent of the slices costs about one percent of the bytes.
//
// Everything here is pure: no clock, no goroutine, no I/O. Everything is safe
// for concurrent use unless it says otherwise.
package assignment
