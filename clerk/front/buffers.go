package front

import "sync"

// Buffers are those that a reverse proxy copies bodies through (httputil.BufferPool). The zero
// value is ready. It is safe for concurrent use.
type Buffers struct{ pool sync.Pool }

const bufferSize = 32 << 10

// Get is httputil.BufferPool's.
func (b *Buffers) Get() []byte {
	if p, ok := b.pool.Get().(*[bufferSize]byte); ok {
		return p[:]
	}
	return make([]byte, bufferSize)
}

// Put is httputil.BufferPool's.
func (b *Buffers) Put(p []byte) {
	if len(p) == bufferSize {
		b.pool.Put((*[bufferSize]byte)(p))
	}
}
