// Package model holds the Promela model of consistent mode, consistent.pml and what
// it includes, and the test that has Spin explore it: go test -tags system -v
// ./test/model. README.md says what is modelled, what is checked, and what Spin
// prints: for two assigners, two slicelets and three generations 3.4 million
// states, all of them, and no violation.
package model
