package autosharding

import (
	"google.golang.org/protobuf/proto"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/distributor/internal/prepared"
	autoshardingv1 "github.com/slicer-project/slicer/proto/autosharding/v1"
)

// payload is an assignment on its way: encoded and marshalled once, by the first that
// sends it, and then shared byte for byte by all that send it.
type payload struct {
	a        *assignment.Assignment
	messages *prepared.Messages
}

// newPayload calls encoded with each encoding that is made.
func newPayload(a *assignment.Assignment, names []naming, encoded func()) *payload {
	return &payload{a, prepared.New(func() ([]proto.Message, error) {
		encoded()
		var msgs []proto.Message
		for _, b := range encode(a, names) {
			msgs = append(msgs, response(b))
		}
		return msgs, nil
	})}
}

// response is a message that is encoded already: what is not known is sent as it is.
func response(encoded []byte) *autoshardingv1.WatchShardingAssignmentResponse {
	m := &autoshardingv1.WatchShardingAssignmentResponse{}
	m.ProtoReflect().SetUnknown(encoded)
	return m
}
