// Package live measures how soon Slicer reacts when load shifts, on the real
// thing: the experiment of the Slicer paper, section 5.2.3, Figure 13.
//
//	go test ./test/bench/live -run '^$' -bench Reaction -benchtime 1x -timeout 60m
//
// An assigner and a Distributor on Pebble, ten servers with slicelets and five
// clients with clerks talk gRPC over loopback TCP, all in one process; nothing is
// simulated and no setting of the job differs from its default. The clients offer
// 100 keys, their popularity a power law of exponent 1.5, and each minute turn to
// other keys as the hot ones, 20 times over. The servers count what reaches them.
//
// What is measured:
//
//   - The imbalance is the largest server's requests over the servers' mean, in a
//     window of 3 s, looked at each quarter of a second. The paper's
//     servers get 800 requests a second; these get 150, so that a small machine can
//     keep up, and 450 in a window: chance alone makes the largest of ten about
//     1.07 even if all are alike. In a window of 1 s it would make it 1.13, and
//     imbalances of less than 1.1 would be taken for more than 1.2.
//   - The reaction is the time from the shift to the end of the first window below
//     1.2 from which on it stays below for 5 s. The window itself is part of it:
//     load that is perfectly even from 5 s after the shift on is seen to be so a
//     second or two later. No reaction can be less than the 3 s of a window.
//   - When it was decided is the time from the shift to the first assignment, as an
//     observer gets it, from which on the load is within 1.2 for 5 s as clients choose
//     keys: what windows would show that were short and full.
//   - A shift is unrecovered if that does not happen before the next one.
//   - The churn of a shift is the share of the keyspace that in the 30 s after it
//     came to servers that did not have it: the reaction and what settles after it.
//     The steady churn is that from then on to the next shift, per minute; a second
//     figure counts from the recovery on.
//
// The times between shifts vary by up to 5 s, so that they do not keep step with
// the assigner's rounds, which are 5 s apart.
//
// BenchmarkQuiet counts the generations, and the rounds held before their time, in ten
// minutes in which the load stays as it is.
//
// BenchmarkOutage is Figure 12: the assigner is away while the load goes on
// shifting, and returns.
//
// The plain tests are the same in short: two shifts, each watched until it has
// recovered, and a short outage.
package live
