package distributor

import (
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/distributor/fanout"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

const (
	// MaxReport is the largest report that a slicelet may send, bytes: some ten
	// thousand ranges. Merged with others it must fit one message upwards.
	MaxReport = 2 << 20
	// maxReportAge bounds the age that a report may claim.
	maxReportAge = 24 * time.Hour
	// maxClientID bounds a subscriber's name, bytes.
	maxClientID = 128
	// maxText bounds what others say in a log line, an error or a status, bytes.
	maxText = 256
)

// checkHello validates the first message of a stream. now bounds the generation
// that is believed. Errors are INVALID_ARGUMENT, or RESOURCE_EXHAUSTED for a
// report that is too large.
func checkHello(m *slicerv1.WatchRequest, now time.Time) (fanout.Hello, error) {
	h := m.GetHello()
	if h == nil {
		return fanout.Hello{}, status.Error(codes.InvalidArgument, "the first message is not a hello")
	}
	in := fanout.Hello{
		Job: h.GetJob(), Role: h.GetRole(),
		Held: fanout.Version{Store: h.GetStoreId(), Gen: assignment.Generation(h.GetGeneration())}, Checksum: h.GetChecksum(), Index: -1,
	}
	if in.Held.Gen == 0 {
		in.Held, in.Checksum = fanout.Version{}, 0
	}
	if err := assignment.ValidateJobName(in.Job); err != nil {
		return fanout.Hello{}, invalid("hello", err)
	}
	if err := checkGeneration(in.Held.Gen, now); err != nil {
		return fanout.Hello{}, invalid("hello", err)
	}
	if h.GetClientId() != "" && !assignment.ValidToken(h.GetClientId(), maxClientID) {
		return fanout.Hello{}, invalid("hello", &assignment.FieldError{Field: "client_id", Value: h.GetClientId(), Allowed: "at most 128 printable ASCII characters without space or slash"})
	}
	switch in.Role {
	case slicerv1.Role_ROLE_CLERK:
		in.Name, in.Client = "clerk "+h.GetClientId(), h.GetClientId()
		if h.ClientIndex != nil {
			in.Index = int(h.GetClientIndex())
		}
		if in.Index > fanout.MaxIndex {
			return fanout.Hello{}, invalid("hello", &assignment.FieldError{Field: "client_index", Value: in.Index, Allowed: fmt.Sprintf("0 to %d", fanout.MaxIndex)})
		}
	case slicerv1.Role_ROLE_OBSERVER:
		in.Name = "observer " + h.GetClientId()
	case slicerv1.Role_ROLE_SLICELET:
		task, err := wire.TaskFromProto(h.GetTask())
		if err != nil {
			return fanout.Hello{}, invalid("hello", err)
		}
		if h.GetReport() != nil {
			if err := checkReport(h.GetReport()); err != nil {
				return fanout.Hello{}, err
			}
		}
		if s := h.GetReport().GetState(); s != slicerv1.TaskState_TASK_STATE_UNSPECIFIED {
			task.State = assignment.TaskState(s)
		}
		// The index is the control plane's to give.
		task.Index = 0
		in.Task, in.Report, in.Name = wire.TaskToProto(task), h.GetReport(), "slicelet "+task.Name
	default:
		return fanout.Hello{}, invalid("hello", &assignment.FieldError{Field: "role", Value: int32(in.Role), Allowed: "1 (clerk), 2 (slicelet) or 3 (observer)"})
	}
	return in, nil
}

// checkReport validates what a slicelet reports; the load itself is the
// assigner's to make sense of.
func checkReport(r *slicerv1.Report) error {
	if fanout.ReportSize(r) > MaxReport { // counting is dearer
		if n := proto.Size(r); n > MaxReport {
			return status.Errorf(codes.ResourceExhausted, "report: %d bytes, at most %d are allowed", n, MaxReport)
		}
	}
	if _, err := wire.StateFromProto(r.GetState()); err != nil {
		return invalid("report", err)
	}
	if a := r.GetAgeMs(); a < 0 || a > maxReportAge.Milliseconds() {
		return invalid("report", &assignment.FieldError{Field: "age_ms", Value: a, Allowed: "0 to a day"})
	}
	if r.GetLoad() == nil {
		return nil
	}
	if err := wire.CheckLoad(r.GetLoad()); err != nil {
		return invalid("report", err)
	}
	return nil
}

// checkGeneration refuses what nobody can hold: believing it would spoil the
// numbers of all later assignments.
func checkGeneration(g assignment.Generation, now time.Time) error {
	if limit := assignment.Generation(now.Add(assignment.MaxAhead).UnixMilli()); g < 0 || g > limit {
		return &assignment.FieldError{Field: "generation", Value: int64(g), Allowed: fmt.Sprintf("0 to %d, a day ahead of the clock here", limit)}
	}
	return nil
}

func invalid(what string, err error) error {
	return status.Errorf(codes.InvalidArgument, "%s: %v", what, err)
}
