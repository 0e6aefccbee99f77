// Package pebblestore keeps assignments and job configs in a directory, for the
// one process that `slicer serve` or `slicer demo` is.
//
//	s, err := pebblestore.Open("/var/lib/slicer", pebblestore.Config{})
//
// The directory is locked: a second process that opens it is refused. The records are
// those of etcdstore, without prefix, in an embedded Pebble; every write is one batch and
// is acknowledged, and seen by readers, only when it has been synced to disk.
// Registrations and watchers are kept in memory.
//
// When the disk is full or broken nothing more is acknowledged: Failed is closed,
// every call returns store.ErrUnavailable, and the process should end. What was
// acknowledged is there when the directory is opened again.
//
// Beside Pebble's files lies one named acknowledged, with the number of the last batch
// that was acknowledged. A store whose log has lost batches that were, by damage or by
// truncation, is refused as corrupt instead of going back in time. An operator who wants
// the past that is left all the same removes that file.
package pebblestore
