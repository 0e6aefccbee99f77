package ratelimit

const partVariable = "SLICER_TEST_RATELIMIT_PART"

func runPart(string) error { return nil }
