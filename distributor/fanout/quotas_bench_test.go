package fanout

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// BenchmarkQuotas is a second of one Distributor of ten for 10^4 tasks and 10^3 customers that
// ask for something everywhere: each of 1,000 tasks reports 256 of them, which is decoded, and
// is told its shares, which are encoded; and the assigner is told the sums, and tells shares.
// core-share is what share of a core that takes.
func BenchmarkQuotas(b *testing.B) {
	const tasks, customers = 1000, 1000
	now := time.Now()
	j := NewJob(Config{Name: testJob, Distributor: "d"})
	from := Peer{Session: 1, ID: "a"}
	j.Step(now, Peers{Preferred: from, Target: from})
	j.Step(now, Answered{From: from, Status: &slicerv1.JobStatus{Job: testJob, Limited: true}})
	limits, err := assignment.LimitsOf(assignment.Limit{Rate: 1000}, nil)
	if err != nil {
		b.Fatal(err)
	}
	var ids []uint64
	var shares []assignment.CustomerShare
	for i := range customers {
		id := assignment.CustomerID(fmt.Sprint("customer-", i))
		ids, shares = append(ids, id), append(shares, assignment.CustomerShare{Customer: id, Share: 100})
	}
	slices.Sort(ids)
	j.Step(now, Quoted{From: 1, Quotas: wire.QuotasToProto(shares, &limits)})
	reports := make([][]byte, tasks)
	for i := range reports {
		id := uint64(i + 1)
		j.Step(now, Came{ID: id, Hello: Hello{Job: testJob, Role: slicerv1.Role_ROLE_SLICELET, Report: running(1), Task: &slicerv1.Task{Name: fmt.Sprint("task-", i), Incarnation: 1, Weight: 1}}})
		var uses []assignment.CustomerUse
		var names []string
		for k := range wire.MaxTaskCustomers {
			at := (k*customers/wire.MaxTaskCustomers + i) % customers
			uses = append(uses, assignment.CustomerUse{Customer: ids[at], Asked: float64(at), Used: 1})
			if k < 16 {
				names = append(names, fmt.Sprint("customer-", at))
			}
		}
		slices.SortFunc(uses, func(x, y assignment.CustomerUse) int {
			if x.Customer < y.Customer {
				return -1
			}
			return 1
		})
		r := running(2)
		r.Customers = wire.UseToProto(uses, names)
		if reports[i], err = proto.Marshal(&slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Report{Report: r}}); err != nil {
			b.Fatal(err)
		}
	}
	up, down, above := 0, 0, 0
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(time.Second)
		j.Step(now, Tick{Acknowledged: now})
		for i := range reports {
			var m slicerv1.WatchRequest
			if err := proto.Unmarshal(reports[i], &m); err != nil {
				b.Fatal(err)
			}
			up += len(reports[i])
			id := uint64(i + 1)
			j.Step(now, Reported{ID: id, Report: m.GetReport()})
			for done := false; !done; {
				done = true
				for _, a := range j.Step(now, Ready{id}) {
					if s, ok := a.(Send); ok {
						done = false
						var c captured
						if err := s.Messages.Send(&c, nil); err != nil {
							b.Fatal(err)
						}
						data, err := proto.Marshal(c.m)
						if err != nil {
							b.Fatal(err)
						}
						if c.m.GetQuotas() != nil {
							down += len(data)
						}
					}
				}
			}
		}
		data, err := proto.Marshal(j.up.uses(now))
		if err != nil {
			b.Fatal(err)
		}
		above += len(data)
		j.Step(now, Quoted{From: 1, Quotas: wire.QuotasToProto(shares, nil)})
	}
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "core-share")
	b.ReportMetric(float64(up)/float64(b.N*tasks), "report-bytes")
	b.ReportMetric(float64(down)/float64(b.N*tasks), "told-bytes")
	b.ReportMetric(float64(above)/float64(b.N), "to-assigner-bytes")
}
