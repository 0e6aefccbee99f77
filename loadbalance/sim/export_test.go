package sim

// Listed is a source of the windows in it.
type Listed = listed
