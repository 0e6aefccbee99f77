package remote

import (
	"testing"

	"github.com/slicer-project/slicer/lease"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"google.golang.org/protobuf/proto"
)

// Whatever a peer says, what is taken are records that there can be.
func FuzzRecords(f *testing.F) {
	seed, err := proto.Marshal(&slicerv1.LeaseRecords{Revision: 9, Guard: 1, GuardOpen: true, BridgeFrom: 1, BridgeTo: 2})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, data []byte) {
		var m slicerv1.LeaseRecords
		if proto.Unmarshal(data, &m) != nil {
			return
		}
		seen, err := records(&m)
		if err != nil {
			return
		}
		if seen.Guard.Generation != 0 {
			text, _ := seen.Guard.MarshalText()
			var back lease.Guard
			if err := back.UnmarshalText(text); err != nil || back != seen.Guard {
				t.Errorf("%+v: %v", seen.Guard, err)
			}
		}
		if seen.Bridge != (lease.Bridge{}) {
			text, _ := seen.Bridge.MarshalText()
			var back lease.Bridge
			if err := back.UnmarshalText(text); err != nil || back != seen.Bridge {
				t.Errorf("%+v: %v", seen.Bridge, err)
			}
		}
	})
}
