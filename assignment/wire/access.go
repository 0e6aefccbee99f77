package wire

import (
	"github.com/slicer-project/slicer/assignment"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// AccessToProto never fails. It returns nil if a job says nothing.
func AccessToProto(a assignment.Access) *slicerv1.Access {
	if a == (assignment.Access{}) {
		return nil
	}
	return &slicerv1.Access{
		Own: a.Of(assignment.Own), Watch: a.Of(assignment.Watch), Read: a.Of(assignment.Read),
		Order: a.Of(assignment.Order), Configure: a.Of(assignment.Configure),
	}
}

// AccessFromProto validates the patterns; none at all are no error.
func AccessFromProto(m *slicerv1.Access) (assignment.Access, error) {
	a, err := accessFromProto(m)
	if err != nil {
		return a, malformed("access", err)
	}
	return a, nil
}

func accessFromProto(m *slicerv1.Access) (assignment.Access, error) {
	if m == nil {
		return assignment.Access{}, nil
	}
	return assignment.AccessOf(map[assignment.Verb][]string{
		assignment.Own: m.Own, assignment.Watch: m.Watch, assignment.Read: m.Read,
		assignment.Order: m.Order, assignment.Configure: m.Configure,
	})
}
