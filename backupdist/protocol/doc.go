// Package protocol is what a Backup Distributor decides, purely: when it reads a job from
// the store (Job), and what it sends to a subscriber (Subscriber). Package backupdist
// carries it out, and so does the simulated cluster (test/cluster), on a network and a
// store of its own.
package protocol
