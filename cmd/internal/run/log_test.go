package run

import (
	"bytes"
	"sync"
)

// LockedBuffer is a log that is written while a test reads it.
type LockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *LockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *LockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
