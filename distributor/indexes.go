package distributor

import (
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/slicer-project/slicer/distributor/fanout"
	"github.com/slicer-project/slicer/distributor/internal/prepared"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// joinClient enters a subscriber if it is a clerk that says who it is.
func (j *job) joinClient(now time.Time, s *subscription) {
	if s.in.client == "" {
		return
	}
	s.index = s.in.index
	s.client = j.clients.Join(now, s.id, s.in.client, s.in.index)
	j.up.ClientsChanged(now)
}

func (j *job) leaveClient(now time.Time, s *subscription) {
	if s.in.client != "" && j.clients.Leave(s.id, s.in.client, j.up.KnowsClients()) {
		j.up.ClientsChanged(now)
	}
}

// indexed takes the indexes that an assigner gives.
func (j *job) indexed(from *attachment, m *slicerv1.ClientIndexes) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if from != j.preferred {
		return // it is not for it to say, not any more
	}
	for _, x := range m.GetIndexes() {
		for id := range j.clients.Grant(x.GetClientId(), x.GetIndex()) {
			if s := j.subs[id]; s != nil {
				j.kick(s)
			}
		}
	}
}

// owesIndex says whether a clerk has an index that it does not know of.
func (s *subscription) owesIndex() bool {
	return s.client != nil && s.client.Index >= 0 && s.client.Index != s.index
}

// statusFor is the status for one subscriber: the one that all share, and only
// when it is to be told its index one of its own.
func (j *job) statusFor(s *subscription, shared *prepared.Messages) *prepared.Messages {
	if !s.owesIndex() {
		return shared
	}
	s.index = s.client.Index
	shown, index := j.board.Shown, uint32(s.index)
	return fanout.StatusMessages(func() *slicerv1.Status {
		own := proto.CloneOf(shown)
		own.ClientIndex = &index
		return own
	})
}

func clientsRequest(c *slicerv1.Clients) *slicerv1.AttachRequest {
	return &slicerv1.AttachRequest{Message: &slicerv1.AttachRequest_Clients{Clients: c}}
}
