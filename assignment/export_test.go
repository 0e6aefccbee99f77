package assignment

// ApplyPatched is Apply that makes a patch however much changes, where it can.
func ApplyPatched(base *Assignment, d *Delta) (*Assignment, error) {
	return applyWithin(base, d, func(int) int { return MaxSlices })
}

// ApplyHalfPatched is Apply whose patches are soon full.
func ApplyHalfPatched(base *Assignment, d *Delta) (*Assignment, error) {
	return applyWithin(base, d, func(slices int) int { return slices / 16 })
}

// Patched reports whether a is a patch of which nothing has needed columns yet.
func (a *Assignment) Patched() bool { return a.patch != nil && a.patch.whole.Load() == nil }
