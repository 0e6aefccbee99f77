package clerk

import "context"

type keyOfContext struct{}

// WithKey returns a context that says which key a request is for. The adapters
// clerkgrpc and clerkhttp route by it. The empty string is a key like any other; with
// one above assignment.MaxKeyLen bytes the request fails.
func WithKey(ctx context.Context, key string) context.Context {
	return &keyed{ctx, key}
}

// keyed is a context of WithKey. It is its own value, to spare an allocation.
type keyed struct {
	context.Context
	key string
}

// Value is context.Context's.
func (k *keyed) Value(key any) any {
	if key == (keyOfContext{}) {
		return k
	}
	return k.Context.Value(key)
}

// KeyOf returns the key that WithKey has put into the context, if any.
func KeyOf(ctx context.Context) (key string, ok bool) {
	if k, ok := ctx.Value(keyOfContext{}).(*keyed); ok {
		return k.key, true
	}
	return "", false
}

type idempotentOfContext struct{}

// WithIdempotent returns a context that says that its requests are safe to carry out
// twice, so that Do and the adapters send one again although a task may have carried
// it out: when the task has lost the key meanwhile ([Lost]), or, in the adapters, is
// said to be dead. A read is so, and a write that sets what it sets whenever it
// comes; one that adds is not.
func WithIdempotent(ctx context.Context) context.Context {
	return context.WithValue(ctx, idempotentOfContext{}, true)
}

// Idempotent reports whether the context is one of WithIdempotent.
func Idempotent(ctx context.Context) bool {
	marked, _ := ctx.Value(idempotentOfContext{}).(bool)
	return marked
}
