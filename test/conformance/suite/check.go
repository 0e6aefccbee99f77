// Package suite is the conformance kit: checks of what a slicelet and a clerk do on the wire, each
// with a name and the place where it is written. A check starts the implementation's driver (package
// line), plays the Distributors that it connects to, by gRPC on the loopback interface, and compares
// what comes with what has to.
package suite

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/slicer-project/slicer/assignment"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// Role is what is tested.
type Role string

// The roles.
const (
	Slicelet Role = "slicelet"
	Clerk    Role = "clerk"
)

// Check is one requirement.
type Check struct {
	Name string
	// Text says in a sentence what is required.
	Text string
	// Ref is where it is written, relative to the repository: PATH#HEADING.
	Ref string
	// Slow takes more than ten seconds, and is left out unless it is asked for.
	Slow bool
	// timed goes by when things happen. A busy machine may be to blame for a fault, so such a
	// check is run again, alone.
	timed bool
	run   func(*T)
}

// Checks are those of a role, in the order in which a new implementation comes to meet them.
func Checks(r Role) []Check {
	if r == Slicelet {
		return append(append(common(), sliceletChecks()...), leaseChecks()...)
	}
	return append(common(), clerkChecks()...)
}

// Where things are written.
const (
	refWatch      = "deploy/docs/PROTOCOLS.md#watch"
	refAssignment = "deploy/docs/PROTOCOLS.md#an-assignment-on-the-wire"
	refChange     = "deploy/docs/PROTOCOLS.md#what-may-change-and-how-versions-mix"
	refSubscriber = "deploy/docs/CONFORMANCE.md#subscribers"
	refSlicelet   = "deploy/docs/CONFORMANCE.md#slicelets"
	refClerk      = "deploy/docs/CONFORMANCE.md#clerks"
	refLeases     = "deploy/docs/CONFORMANCE.md#leases"
	refDriver     = "deploy/docs/CONFORMANCE.md#the-driver"
)

// T is one run of a check.
type T struct {
	role     Role
	command  []string
	patience time.Duration
	began    time.Time
	ref      string
	dir      string // for files

	sessions []*session
	servers  []*server

	mu    sync.Mutex
	trace []string
}

// What ends a check early, by panic.
type (
	// violation is what the implementation has done wrong.
	violation struct{ want, saw, ref string }
	// unsupported is an operation that it does not have.
	unsupported struct{ op string }
	// trouble is the kit's.
	trouble struct{ err error }
)

func (t *T) fault(want, saw string) { t.faultAt(t.ref, want, saw) }

func (t *T) faultAt(ref, want, saw string) { panic(violation{want, saw, ref}) }

// maxTrace bounds what is noted of one check, lines.
const maxTrace = 2000

func (t *T) note(format string, args ...any) {
	text := fmt.Sprintf("%6.3f  %s", time.Since(t.began).Seconds(), clip(fmt.Sprintf(format, args...), 600))
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.trace) < maxTrace {
		t.trace = append(t.trace, text)
	}
}

// server starts a Distributor, or a Backup Distributor, by a name for messages.
func (t *T) server(name string) *server {
	s := newServer(t, name)
	t.servers = append(t.servers, s)
	return s
}

// close ends all that the check has started.
func (t *T) close() {
	for _, s := range t.sessions {
		s.kill()
	}
	for _, s := range t.servers {
		s.close()
	}
}

// quit has all drivers that run end in an orderly way.
func (t *T) quit() {
	for _, s := range t.sessions {
		if !s.closed {
			s.quit()
		}
	}
}

// eventually waits until look is content, and blames the implementation with what it saw last
// otherwise.
func (t *T) eventually(want string, look func() (ok bool, saw string)) {
	deadline := time.Now().Add(t.patience)
	for {
		ok, saw := look()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.fault(fmt.Sprintf("%s within %s", want, t.patience), saw)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func clip(s string, n int) string {
	if clipped := assignment.Clip(s, n); len(clipped) < len(s) {
		return clipped + "..."
	}
	return s
}

// show is a message in one line.
func show(m any) string {
	switch m := m.(type) {
	case *slicerv1.WatchRequest:
		return oneLine(prototext.MarshalOptions{}.Format(m))
	case *slicerv1.WatchResponse:
		if c := m.GetChunk(); c != nil {
			return fmt.Sprintf("chunk of %d bytes", len(c.GetData()))
		}
		return oneLine(prototext.MarshalOptions{}.Format(m))
	case proto.Message:
		return oneLine(prototext.MarshalOptions{}.Format(m))
	}
	return fmt.Sprint(m)
}

// oneLine makes the spaces of a text single, which prototext changes from build to build.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
