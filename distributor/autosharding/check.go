package autosharding

import (
	"fmt"
	"math"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	autoshardingv1 "github.com/slicer-project/slicer/proto/autosharding/v1"
)

// Bounds of what clients say.
const (
	maxUUID         = 128     // bytes
	maxErrorMessage = 512     // code points
	maxMetrics      = 16      // in a load report
	maxRanges       = 1 << 17 // of one metric
	maxStartKey     = 1 << 10 // bytes
	maxWindow       = 24 * time.Hour
)

// introduction is a first message that makes sense.
type introduction struct {
	job  string
	name string // as metrics, logs and stragglers call the client
	held assignment.Generation
}

// checkFirst validates the first message of a stream. now bounds the generation
// that is believed. Errors are INVALID_ARGUMENT.
func checkFirst(m *autoshardingv1.WatchShardingAssignmentRequest, now time.Time) (introduction, error) {
	c := m.GetInitialClientConfig()
	if c == nil {
		return introduction{}, status.Error(codes.InvalidArgument, "the first message is not initial_client_config")
	}
	in := introduction{job: c.GetTarget(), name: "grpc-clerk " + c.GetClientUuid(), held: assignment.Generation(c.GetLatestGeneration())}
	if err := assignment.ValidateJobName(in.job); err != nil {
		return introduction{}, invalid("initial_client_config: target", err)
	}
	if !assignment.ValidToken(c.GetClientUuid(), maxUUID) {
		return introduction{}, invalid("initial_client_config", &assignment.FieldError{
			Field: "client_uuid", Value: c.GetClientUuid(), Allowed: "1 to 128 printable ASCII characters without space or slash"})
	}
	if limit := now.Add(assignment.MaxAhead).UnixMilli(); in.held < 0 || int64(in.held) > limit {
		return introduction{}, invalid("initial_client_config", &assignment.FieldError{
			Field: "latest_generation", Value: int64(in.held), Allowed: fmt.Sprintf("0 to %d, a day ahead of the clock here", limit)})
	}
	return in, nil
}

// checkAck validates an acknowledgement as far as it goes without what was sent.
func checkAck(a *autoshardingv1.AssignmentAck) error {
	if n := utf8.RuneCountInString(a.GetErrorMessage()); n > maxErrorMessage {
		return invalid("assignment_ack", &assignment.FieldError{
			Field: "error_message", Value: fmt.Sprintf("%d code points", n), Allowed: "at most 512 code points"})
	}
	return nil
}

// Report is a load report that makes sense: what one client has sent to each range
// of keys, in the job's load metric.
type Report struct {
	// Window is how long it took.
	Window time.Duration
	// Starts are in increasing order; each range ends where the next begins, the
	// last at the end of the keyspace. Amount is in load units, one for each.
	Starts []assignment.SliceKey
	Amount []float64
}

// checkReport validates a load report and returns what it says in one metric, nil
// if it says nothing of that.
func checkReport(m *autoshardingv1.LoadReport, metric string) (*Report, error) {
	window := m.GetEndTime().AsTime().Sub(m.GetStartTime().AsTime())
	switch {
	case m.GetStartTime().CheckValid() != nil:
		return nil, reportError("start_time", m.GetStartTime().String(), "a time")
	case m.GetEndTime().CheckValid() != nil:
		return nil, reportError("end_time", m.GetEndTime().String(), "a time")
	case window <= 0 || window > maxWindow:
		return nil, reportError("end_time", window.String()+" after start_time", "more than 0 and at most a day after it")
	case len(m.GetMetricLoads()) > maxMetrics:
		return nil, reportError("metric_loads", fmt.Sprintf("%d metrics", len(m.GetMetricLoads())), "at most 16")
	}
	var out *Report
	for name, l := range m.GetMetricLoads() {
		if err := checkRanges(l.GetRangeLoads(), window); err != nil {
			return nil, err
		}
		if name != metric {
			continue
		}
		out = &Report{Window: window}
		for _, r := range l.GetRangeLoads() {
			out.Starts = append(out.Starts, keyFrom(r.GetStartKey()))
			out.Amount = append(out.Amount, r.GetLoad())
		}
	}
	return out, nil
}

func checkRanges(rs []*autoshardingv1.RangeLoad, window time.Duration) error {
	if len(rs) > maxRanges {
		return reportError("range_loads", fmt.Sprintf("%d ranges", len(rs)), fmt.Sprintf("at most %d", maxRanges))
	}
	for i, r := range rs {
		at := fmt.Sprintf("range_loads[%d].", i)
		switch limit := wire.MaxRate * window.Seconds(); {
		case len(r.GetStartKey()) > maxStartKey:
			return reportError(at+"start_key", fmt.Sprintf("%d bytes", len(r.GetStartKey())), "at most 1024 bytes")
		case i > 0 && string(r.GetStartKey()) <= string(rs[i-1].GetStartKey()):
			return reportError(at+"start_key", string(r.GetStartKey()), "greater than that of the range before")
		case math.IsNaN(r.GetLoad()) || r.GetLoad() < 0 || r.GetLoad() > limit:
			return reportError(at+"load", fmt.Sprint(r.GetLoad()), fmt.Sprintf("0 to %g", limit))
		}
	}
	return nil
}

func reportError(field, value, allowed string) error {
	return invalid("load_report", &assignment.FieldError{Field: field, Value: value, Allowed: allowed})
}

func invalid(what string, err error) error {
	return status.Errorf(codes.InvalidArgument, "%s: %v", what, err)
}
