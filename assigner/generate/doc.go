// Package generate drives the assignments of one job: what to read, when to
// decide, what to write, and what to say about it. It is pure: what the store
// and the Distributors said and the time come in as values, actions go out.
//
// The loop is the one of the Slicer paper, section 4.1: read the stored
// assignment, decide on the next, write it on condition that the one read is
// still the newest, and if it is not read again and decide anew. So any number of
// assigners may run it at once. Only the preferred one decides; the others follow
// what is stored.
//
// A job is decided on at once when a task came, went or drains, and for the sake of
// load at its balancing interval, or early: when the last two reports of a task agree
// that it carries far more than the last round foretold, a round is held on the newest
// reports alone. The round after one that found much more imbalance than it leaves is
// held after .4 of the interval. Every round says why it was held, what
// it decided and for what reason, or why it did nothing.
//
// The caller's part, for a Core c of a job, with a lock around c:
//
//	for {
//		action, wake := c.Next(now())
//		switch a := action.(type) {
//		case generate.Load:   // read the job and its assignment
//			c.Loaded(now(), ...)
//		case *generate.Plan:  // takes milliseconds to a second: without the lock
//			c.Planned(now(), a.Run())
//		case generate.Write:  // write a.Next
//			c.Written(now(), err)
//		case generate.Lead:   // take the job lease; this and the next three in consistent mode
//			c.Led(now(), token, err)
//		case generate.Change: // begin lease.Advance, elsewhere; when it ends:
//			c.Changed(now(), ...)
//		case generate.Abandon: // end that
//		case generate.Resign: // give the job lease back
//			c.Resigned(now(), err)
//		default:
//			// wait until wake, or until something is heard
//		}
//		deliver(c.Outputs())
//	}
package generate
