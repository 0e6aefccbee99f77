package assignment_test

import (
	"math/rand/v2"
	"regexp"
	"testing"

	"github.com/slicer-project/slicer/assignment"
)

// What is read is valid: it prints, and reads again as the same.
func FuzzParse(f *testing.F) {
	// Without checksums, so that what the fuzzer changes can stay valid.
	without := regexp.MustCompile("checksum .*\n")
	f.Add(without.ReplaceAll([]byte(sampleText), nil))
	for seed := range uint64(3) {
		text, _ := random(f, rand.New(rand.NewPCG(seed, 2)), 5, 3).MarshalText()
		f.Add(without.ReplaceAll(text, nil))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		a, err := assignment.Parse(text)
		if err != nil {
			return
		}
		again, _ := a.MarshalText()
		b, err := assignment.Parse(again)
		if err != nil || a.Checksum() != b.Checksum() {
			t.Fatalf("%v\n%s", err, again)
		}
	})
}

func FuzzParseJSON(f *testing.F) {
	without := regexp.MustCompile(`,\s*"checksum":"\w*"`)
	f.Add(without.ReplaceAll([]byte(sampleJSON), nil))
	for seed := range uint64(3) {
		data, _ := random(f, rand.New(rand.NewPCG(seed, 3)), 5, 3).MarshalJSON()
		f.Add(without.ReplaceAll(data, nil))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := assignment.ParseJSON(data)
		if err != nil {
			return
		}
		again, _ := a.MarshalJSON()
		b, err := assignment.ParseJSON(again)
		if err != nil || a.Checksum() != b.Checksum() {
			t.Fatalf("%v\n%s", err, again)
		}
	})
}
