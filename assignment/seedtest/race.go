//go:build race

package seedtest

// Detector reports whether the race detector is built in.
const Detector = true
