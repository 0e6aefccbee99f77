package sliceletgrpc

import (
	"context"

	"google.golang.org/grpc/metadata"
)

// incoming is the metadata of an RPC, which must not be changed. Package metadata has no
// function for that: its own copy what they find, and look at all names for one that is not
// there, which most of ours are not. So it is asked once under which key contexts have the
// metadata.
func incoming(ctx context.Context) metadata.MD {
	if incomingKey != nil {
		if md, ok := ctx.Value(incomingKey).(metadata.MD); ok {
			return md
		}
	}
	md, _ := metadata.FromIncomingContext(ctx)
	return md
}

var incomingKey = func() any {
	ctx := &asked{Context: context.Background()}
	metadata.FromIncomingContext(ctx)
	return ctx.key
}()

// asked is a context that notes the key of the value it is asked for.
type asked struct {
	context.Context
	key any
}

// Value is context.Context's.
func (a *asked) Value(key any) any {
	a.key = key
	return nil
}
