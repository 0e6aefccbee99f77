package fanout

import (
	"time"

	"github.com/slicer-project/slicer/assignment"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// Peer is the other end of a stream upwards: an assigner, or in the second tier a
// Distributor of the first. The zero Peer is none.
type Peer struct {
	Session   Session
	ID        string
	FirstTier bool // it is a Distributor of the first tier
}

// Event is something that has happened to a job: one of the types below. Messages that
// it carries are kept and are not to be changed.
type Event interface{ event() }

// Tick is due when the time of the last Timer has come, and after a Due.
type Tick struct {
	// Acknowledged is when the preferred assigner last said that it hears this
	// Distributor, zero if there is none.
	Acknowledged time.Time
}

// Events of the streams upwards.
type (
	// Peers are to be told and asked from now on: the preferred assigner gets reports and
	// acknowledgements, the target is asked for assignments.
	Peers struct {
		Preferred, Target Peer
		Store             uint64 // that keeps the job, 0 if that is not known
		// Acknowledged is when the assigner that was preferred so far last said that it
		// hears this Distributor.
		Acknowledged time.Time
	}
	// Offered is an assignment that an assigner has sent, stored so long ago.
	Offered struct {
		From       Peer
		Assignment *assignment.Assignment
		Age        time.Duration
	}
	// Undecodable is for an assignment that did not decode.
	Undecodable struct{ From Session }
	// BaseOffered is an older assignment that was asked for, nil if there is none.
	BaseOffered struct {
		From       Session
		Assignment *assignment.Assignment
	}
	// Answered is what an assigner says about the job.
	Answered struct {
		From   Peer
		Status *slicerv1.JobStatus
	}
	// AccessAsked asks what the job's config says of rights, which a subscriber is not let in
	// without where there is a policy. Access is the answer; without one it is to be asked
	// again after a Changed, and with Waited when that has taken too long.
	AccessAsked struct{ Waited bool }
	// TaskRefused is for a task that the assigner will not have.
	TaskRefused struct{ Refusal *slicerv1.RefuseTask }
	// Indexed are the indexes that an assigner gives to clients.
	Indexed struct {
		From    Session
		Indexes *slicerv1.ClientIndexes
	}
	// Quoted is how much of the job's limits tasks may use that are connected here.
	Quoted struct {
		From   Session
		Quotas *slicerv1.Quotas
	}
	// PeerReady asks what a peer is to be told now, after a Notify. Tell is the answer.
	PeerReady struct{ Session Session }
)

// Events of subscribers. A subscriber's number is unique and grows.
type (
	// Came is a subscriber's first message. A Refuse in return means that it has not been
	// let in.
	Came struct {
		ID    uint64
		Hello Hello
		// Key is of the client that it counts against where something is limited, "" for
		// one that is not.
		Key string
		// Identity is that of its certificate, "" where rights are not asked for.
		Identity string
	}
	// Reported is a slicelet's report.
	Reported struct {
		ID     uint64
		Report *slicerv1.Report
	}
	// Acked says that a subscriber holds a generation, or would not take it.
	Acked struct {
		ID      uint64
		Gen     assignment.Generation
		Refusal string
	}
	// Ready asks what a subscriber is to be sent next, after a Wake. Send is the answer;
	// without one it lacks nothing until the next Wake.
	Ready struct{ ID uint64 }
	// PartCut is what a CutPart asks for.
	PartCut struct {
		id         uint64
		part, held *assignment.Assignment
	}
	// DeltaFailed says that the delta which was to be sent could not be encoded.
	DeltaFailed struct{ ID uint64 }
	// Holds is what a Distributor of the second tier says that it holds now, whatever it
	// was sent, and whether it reads compressed wholes.
	Holds struct {
		ID         uint64
		Held       Version
		Checksum   uint64
		Compressed bool
	}
	// HeldElsewhere is the newest assignment that slicelets of another Distributor hold.
	HeldElsewhere struct{ Held Version }
	// Left says that a subscriber's stream, or an auto-sharding client's, has ended.
	Left struct{ ID uint64 }
	// Fetched asks for one generation, whole and maybe Compressed, or if it is large the part
	// for a task, if that is named; 0 is the newest. Found is the answer; without one it is to
	// be asked again after a Changed, and with Waited when that has taken too long.
	Fetched struct {
		Gen        assignment.Generation
		Compressed bool
		Part       string
		Waited     bool
	}
)

// Events of clients of gRPC's auto-sharding protocol and of xDS, which are numbered as
// subscribers are.
type (
	// ClientCame lets such a client in, which holds a generation. It counts as a clerk, or
	// as an observer until it says what it holds.
	ClientCame struct {
		ID       uint64
		Name     string
		Held     assignment.Generation
		Observes bool
	}
	// ClientAsks asks for the newest assignment. Newest is the answer.
	ClientAsks struct{ ID uint64 }
	// ClientHolds says that it holds a generation.
	ClientHolds struct {
		ID  uint64
		Gen assignment.Generation
	}
	// ClientRefuses says that it will not take what it was sent: it counts as an observer
	// then, for which nothing waits.
	ClientRefuses struct{ ID uint64 }
	// ClientObserves says that it does not ask for assignments now: it counts as an observer.
	ClientObserves struct{ ID uint64 }
)

func (Tick) event()           {}
func (Peers) event()          {}
func (Offered) event()        {}
func (Undecodable) event()    {}
func (Quoted) event()         {}
func (BaseOffered) event()    {}
func (Answered) event()       {}
func (AccessAsked) event()    {}
func (TaskRefused) event()    {}
func (Indexed) event()        {}
func (PeerReady) event()      {}
func (Came) event()           {}
func (Reported) event()       {}
func (Acked) event()          {}
func (Ready) event()          {}
func (PartCut) event()        {}
func (DeltaFailed) event()    {}
func (Holds) event()          {}
func (HeldElsewhere) event()  {}
func (Left) event()           {}
func (Fetched) event()        {}
func (ClientCame) event()     {}
func (ClientAsks) event()     {}
func (ClientHolds) event()    {}
func (ClientRefuses) event()  {}
func (ClientObserves) event() {}
