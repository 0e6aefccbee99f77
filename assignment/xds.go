package assignment

import "time"

// XDSConfig says what stock gRPC clients of a job do, which Distributors serve by xDS.
type XDSConfig struct {
	// Missing is what becomes of calls that no owner takes, such as those without a key;
	// default MissingAny.
	Missing Missing
	// Retries is how often a call is sent again that has found no connection, or has lost it
	// before an answer: 1 to MaxXDSRetries, which is the default; NoXDSRetries is never.
	Retries int
	// RetryBackoff is after how long about: 1 ms to 1 s, default 20 ms. It doubles each time,
	// up to ten times as long.
	RetryBackoff time.Duration
}

const (
	// MaxXDSRetries is the most that Retries may be: gRPC sends a call five times at most.
	MaxXDSRetries = 4
	// NoXDSRetries is the Retries of a job whose calls are not sent again.
	NoXDSRetries = -1
)

func (c XDSConfig) validRetries() bool {
	return within(c.Retries, 1, MaxXDSRetries) || c.Retries == NoXDSRetries
}

func (c XDSConfig) validBackoff() bool {
	return within(c.RetryBackoff, time.Millisecond, time.Second) && whole(c.RetryBackoff)
}

// OrDefaults returns c with the defaults in place of what is not valid.
func (c XDSConfig) OrDefaults() XDSConfig {
	if !c.Missing.Valid() {
		c.Missing = MissingAny
	}
	if !c.validRetries() {
		c.Retries = MaxXDSRetries
	}
	if !c.validBackoff() {
		c.RetryBackoff = 20 * time.Millisecond
	}
	return c
}

// Missing is what becomes of a stock gRPC client's calls that no owner takes.
type Missing uint8

const (
	// MissingAny sends them to any task.
	MissingAny Missing = iota + 1
	// MissingRefuse lets them fail at the client.
	MissingRefuse
)

const missings = "any or refuse"

var missingNames = [...]string{"", MissingAny: "any", MissingRefuse: "refuse"}

// String is any or refuse, and empty for what does not exist.
func (m Missing) String() string {
	if !m.Valid() {
		return ""
	}
	return missingNames[m]
}

// Valid reports whether m is one of the two.
func (m Missing) Valid() bool { return m == MissingAny || m == MissingRefuse }

// ParseMissing reads what String prints, but not the empty text.
func ParseMissing(s string) (Missing, error) {
	for m := MissingAny; m <= MissingRefuse; m++ {
		if s == missingNames[m] {
			return m, nil
		}
	}
	return 0, &FieldError{"missing", s, missings}
}
