//go:build race

package seedtest

// Detector says whether the race detector is built in.
const Detector = true
