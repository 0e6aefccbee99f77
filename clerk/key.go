package clerk

import "context"

type keyOfContext struct{}

// WithKey returns a context that says which key a request is for. The adapters
// clerkgrpc and clerkhttp route by it. The empty string is a key like any other; with
// one above assignment.MaxKeyLen bytes the request fails.
func WithKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, keyOfContext{}, key)
}

// KeyOf returns the key that WithKey has put into the context, if any.
func KeyOf(ctx context.Context) (key string, ok bool) {
	key, ok = ctx.Value(keyOfContext{}).(string)
	return key, ok
}
