package fanout

import (
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

const (
	// MaxReport is the largest report that a slicelet may send, bytes: some ten
	// thousand ranges. Merged with others it must fit one message upwards.
	MaxReport = 2 << 20
	// MaxReportAge bounds the age that a report may claim.
	MaxReportAge = 24 * time.Hour
	// maxClientID bounds a subscriber's name, bytes.
	maxClientID = 128
)

// CheckHello validates the first message of a stream. now bounds the generation
// that is believed. Errors are INVALID_ARGUMENT, or RESOURCE_EXHAUSTED for a
// report that is too large.
func CheckHello(m *slicerv1.WatchRequest, now time.Time) (Hello, error) {
	h := m.GetHello()
	if h == nil {
		return Hello{}, status.Error(codes.InvalidArgument, "the first message is not a hello")
	}
	in := Hello{
		Job: h.GetJob(), Role: h.GetRole(),
		Held: Version{Store: h.GetStoreId(), Gen: assignment.Generation(h.GetGeneration())}, Checksum: h.GetChecksum(), Index: -1,
		Compressed: h.GetCompressed(),
	}
	if in.Held.Gen == 0 {
		in.Held, in.Checksum = Version{}, 0
	}
	if err := assignment.ValidateJobName(in.Job); err != nil {
		return Hello{}, Invalid("hello", err)
	}
	if err := CheckGeneration(in.Held.Gen, now); err != nil {
		return Hello{}, Invalid("hello", err)
	}
	if h.GetClientId() != "" && !assignment.ValidToken(h.GetClientId(), maxClientID) {
		return Hello{}, Invalid("hello", &assignment.FieldError{Field: "client_id", Value: h.GetClientId(), Allowed: "at most 128 printable ASCII characters without space or slash"})
	}
	switch in.Role {
	case slicerv1.Role_ROLE_CLERK:
		in.Name, in.Client = "clerk "+h.GetClientId(), h.GetClientId()
		if h.ClientIndex != nil {
			in.Index = int(h.GetClientIndex())
		}
		if in.Index > MaxIndex {
			return Hello{}, Invalid("hello", &assignment.FieldError{Field: "client_index", Value: in.Index, Allowed: fmt.Sprintf("0 to %d", MaxIndex)})
		}
	case slicerv1.Role_ROLE_OBSERVER:
		in.Name = "observer " + h.GetClientId()
	case slicerv1.Role_ROLE_SLICELET:
		task, err := wire.TaskFromProto(h.GetTask())
		if err != nil {
			return Hello{}, Invalid("hello", err)
		}
		if h.GetReport() != nil {
			if err := CheckReport(h.GetReport()); err != nil {
				return Hello{}, err
			}
		}
		if s := h.GetReport().GetState(); s != slicerv1.TaskState_TASK_STATE_UNSPECIFIED {
			task.State = assignment.TaskState(s)
		}
		// The index is the control plane's to give.
		task.Index = 0
		in.Task, in.Report, in.Name = wire.TaskToProto(task), h.GetReport(), "slicelet "+task.Name
		in.Parts = h.GetParts()
	default:
		return Hello{}, Invalid("hello", &assignment.FieldError{Field: "role", Value: int32(in.Role), Allowed: "1 (clerk), 2 (slicelet) or 3 (observer)"})
	}
	return in, nil
}

// CheckReport validates what a slicelet reports; the load itself is the
// assigner's to make sense of.
func CheckReport(r *slicerv1.Report) error {
	if ReportSize(r) > MaxReport { // counting is dearer
		if n := proto.Size(r); n > MaxReport {
			return status.Errorf(codes.ResourceExhausted, "report: %d bytes, at most %d are allowed", n, MaxReport)
		}
	}
	if _, err := wire.StateFromProto(r.GetState()); err != nil {
		return Invalid("report", err)
	}
	if a := r.GetAgeMs(); a < 0 || a > MaxReportAge.Milliseconds() {
		return Invalid("report", &assignment.FieldError{Field: "age_ms", Value: a, Allowed: "0 to a day"})
	}
	if r.GetLoad() == nil {
		return nil
	}
	if err := wire.CheckLoad(r.GetLoad()); err != nil {
		return Invalid("report", err)
	}
	return nil
}

// Event is what a subscriber has said after its hello, nil for a message of a later
// version.
func (h *Hello) Event(now time.Time, id uint64, m *slicerv1.WatchRequest) (Event, error) {
	switch {
	case m.GetReport() != nil && h.Role != slicerv1.Role_ROLE_SLICELET:
		return nil, status.Errorf(codes.InvalidArgument, "report: %s is not a slicelet", h.Name)
	case m.GetReport() != nil:
		return Reported{ID: id, Report: m.GetReport()}, CheckReport(m.GetReport())
	case m.GetAck() != nil:
		g := assignment.Generation(m.GetAck().GetGeneration())
		if err := CheckGeneration(g, now); err != nil {
			return nil, Invalid("ack", err)
		}
		return Acked{ID: id, Gen: g, Refusal: m.GetAck().GetRefusal()}, nil
	case m.GetHello() != nil:
		return nil, status.Error(codes.InvalidArgument, "hello: said before")
	}
	return nil, nil
}

// CheckGeneration refuses a generation that cannot exist yet: accepting it would spoil
// the numbers of all later assignments.
func CheckGeneration(g assignment.Generation, now time.Time) error {
	if limit := assignment.Generation(now.Add(assignment.MaxAhead).UnixMilli()); g < 0 || g > limit {
		return &assignment.FieldError{Field: "generation", Value: int64(g), Allowed: fmt.Sprintf("0 to %d, a day ahead of the clock here", limit)}
	}
	return nil
}

// Invalid is INVALID_ARGUMENT.
func Invalid(what string, err error) error {
	return status.Errorf(codes.InvalidArgument, "%s: %v", what, err)
}

// CheckFetch checks what is asked for by Fetch. The error is a gRPC status.
func CheckFetch(req *slicerv1.FetchRequest, now time.Time) error {
	err := assignment.ValidateJobName(req.GetJob())
	if err == nil {
		err = CheckGeneration(assignment.Generation(req.GetGeneration()), now)
	}
	if err == nil {
		err = assignment.ValidatePart(req.GetPart())
	}
	if err != nil {
		return Invalid("fetch", err)
	}
	return nil
}
