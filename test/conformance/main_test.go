package main

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// asProgram makes the test's binary the program itself, so that drivers are processes as those of
// other languages are.
const asProgram = "SLICER_CONFORMANCE_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	if err := os.Setenv(asProgram, "1"); err != nil { // for the drivers
		panic(err)
	}
	goleak.VerifyTestMain(m)
}
