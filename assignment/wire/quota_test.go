package wire_test

import (
	"errors"
	"maps"
	"math"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

func TestQuotas(t *testing.T) {
	t.Parallel()
	uses := []assignment.CustomerUse{{Customer: 3, Asked: 10, Used: 5}, {Customer: 7}}
	got, names, err := wire.UseFromProto(wire.UseToProto(uses, []string{"mail", "bad name", ""}), 3)
	if err != nil || !slices.Equal(got, uses) || !slices.Equal(names, []string{"mail"}) {
		t.Errorf("%v %v %v", got, names, err)
	}
	if wire.UseToProto(nil, nil) != nil {
		t.Error("something is said of nothing")
	}
	if got, names, err := wire.UseFromProto(nil, 2); len(got)+len(names) > 0 || err != nil {
		t.Errorf("nothing: %v %v %v", got, names, err)
	}
	limits, err := assignment.LimitsOf(assignment.Limit{Rate: 5}, map[string]assignment.Limit{"mail": {Rate: 2}})
	if err != nil {
		t.Fatal(err)
	}
	q, err := wire.QuotasFromProto(wire.QuotasToProto([]assignment.CustomerShare{{Customer: 9, Share: .5}, {Customer: 4, Share: 8}}, &limits), nil)
	want := map[uint64]float64{9: .5, 4: 8}
	if err != nil || q.Limits != limits || !maps.Equal(q.Shares, want) {
		t.Fatalf("%+v %v", q, err)
	}
	// What is not said is as before.
	for _, m := range []*slicerv1.Quotas{nil, {}, wire.QuotasToProto(nil, nil)} {
		if again, err := wire.QuotasFromProto(m, q); err != nil || again.Limits != limits || !maps.Equal(again.Shares, want) {
			t.Errorf("%v: %+v %v", m, again, err)
		}
	}
	if none, err := wire.QuotasFromProto(wire.QuotasToProto(nil, new(assignment.Limits)), q); err != nil || none.Limits != (assignment.Limits{}) {
		t.Errorf("no limits: %+v %v", none, err)
	}
}

func TestQuotasRefused(t *testing.T) {
	t.Parallel()
	nan := float32(math.NaN())
	for what, m := range map[string]*slicerv1.CustomerUse{
		"too many":       {Customer: []uint64{1, 2, 3}, Asked: []float32{1, 1, 1}, Used: []float32{1, 1, 1}},
		"too many names": {Name: []string{"a", "b", "c"}},
		"no rates":       {Customer: []uint64{1}},
		"twice":          {Customer: []uint64{1, 1}, Asked: []float32{1, 1}, Used: []float32{1, 1}},
		"out of order":   {Customer: []uint64{2, 1}, Asked: []float32{1, 1}, Used: []float32{1, 1}},
		"NaN":            {Customer: []uint64{1}, Asked: []float32{nan}, Used: []float32{1}},
		"negative":       {Customer: []uint64{1}, Asked: []float32{1}, Used: []float32{-1}},
		"infinite":       {Customer: []uint64{1}, Asked: []float32{float32(math.Inf(1))}, Used: []float32{1}},
	} {
		if _, _, err := wire.UseFromProto(m, 2); !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, m := range map[string]*slicerv1.Quotas{
		"no shares": {Customer: []uint64{1}},
		"NaN":       {Customer: []uint64{1}, Share: []float32{nan}},
		"limits":    {Limits: &slicerv1.Limits{Others: &slicerv1.Limit{Rate: -1}}},
		"too many":  {Customer: make([]uint64, wire.MaxCustomers+1), Share: make([]float32, wire.MaxCustomers+1)},
	} {
		if _, err := wire.QuotasFromProto(m, nil); !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// FuzzQuotas: whatever comes, what is accepted is within bounds.
func FuzzQuotas(f *testing.F) {
	limits, _ := assignment.LimitsOf(assignment.Limit{Rate: 5}, map[string]assignment.Limit{"mail": {Rate: 2}})
	for _, m := range []proto.Message{
		wire.UseToProto([]assignment.CustomerUse{{Customer: 3, Asked: 10, Used: 5}, {Customer: 7}}, []string{"mail"}),
		wire.QuotasToProto([]assignment.CustomerShare{{Customer: 9, Share: .5}}, &limits),
	} {
		data, _ := proto.Marshal(m)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var u slicerv1.CustomerUse
		if proto.Unmarshal(data, &u) == nil {
			if uses, _, err := wire.UseFromProto(&u, wire.MaxTaskCustomers); err == nil {
				for _, x := range uses {
					if !(x.Asked >= 0 && x.Asked <= math.MaxFloat32 && x.Used >= 0 && x.Used <= math.MaxFloat32) {
						t.Fatal(x)
					}
				}
			}
		}
		var m slicerv1.Quotas
		if proto.Unmarshal(data, &m) == nil {
			if q, err := wire.QuotasFromProto(&m, nil); err == nil {
				for _, share := range q.Shares {
					if !(share >= 0 && share <= math.MaxFloat32) {
						t.Fatal(share)
					}
				}
				for name, l := range q.Limits.All() {
					if !assignment.ValidCustomer(name) || q.Limits.Of(name) != l {
						t.Fatal(name)
					}
				}
			}
		}
	})
}
