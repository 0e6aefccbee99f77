package front

import "time"

// LookEvery is for tests that do not wait for lookEvery.
func (c Config) LookEvery(d time.Duration) Config {
	c.lookEvery = d
	return c
}

// LookUpEvery is for tests that do not wait for lookUpEvery.
func (c Config) LookUpEvery(d time.Duration) Config {
	c.lookUpEvery = d
	return c
}

// What reads of etcd for unknown names are held to.
const (
	UnknownEvery = unknownEvery
	UnknownBurst = unknownBurst
)
