package limiter

import (
	"errors"
	"sync"
)

// Errors of Shares.Take: of all together, and of the key.
var (
	ErrAllTaken   = errors.New("no more are allowed")
	ErrShareTaken = errors.New("no more are allowed of one key")
)

// Shares limit how many of something there are at once, and how many of them of one key. All
// methods are safe for concurrent use.
type Shares struct {
	most, each int

	mu    sync.Mutex
	taken int
	of    map[string]int // by key, of those that have some
}

// NewShares allows so many at once, and each key so many of them.
func NewShares(most, each int) *Shares {
	return &Shares{most: most, each: each, of: make(map[string]int)}
}

// Take counts one more of a key, or returns why there is none.
func (s *Shares) Take(key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.taken >= s.most:
		return ErrAllTaken
	case s.of[key] >= s.each:
		return ErrShareTaken
	}
	s.taken++
	s.of[key]++
	return nil
}

// Give takes back what Take has counted.
func (s *Shares) Give(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken--
	if s.of[key]--; s.of[key] == 0 {
		delete(s.of, key)
	}
}

// Taken is how many there are, and of how many keys.
func (s *Shares) Taken() (all, keys int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken, len(s.of)
}
