// Package model holds the Promela model of consistent mode, consistent.pml, and
// the test that has Spin explore it: go test -tags system ./test/model. README.md
// says what is modelled and what is checked.
package model
