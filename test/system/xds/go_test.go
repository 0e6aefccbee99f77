package xds

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
)

// grpc-go's client, as it is, calls the owner of each key.
func TestStockGoClientIsSharded(t *testing.T) {
	f := newFleet(t, assignment.JobConfig{}, 3)
	cc := f.dial("go-0")
	f.agrees(cc, 300)
	m, err := f.inspect(0)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Xds) != 1 || m.Xds[0].Clients != 1 || m.Xds[0].Refusing != 0 || m.Xds[0].Nacks != 0 || m.Xds[0].Acks < 4 || m.Clerks != 1 {
		t.Errorf("inspect shows %v and %d clerks", m.Xds, m.Clerks)
	}
	if _, err := call(t.Context(), cc, "x"); err != nil {
		t.Error(err)
	}
	if _, err := call(t.Context(), f.dialOf("nothing", "go-1"), "x"); status.Code(err) != codes.Unavailable {
		t.Errorf("a job that does not exist: %v", err)
	}
}
