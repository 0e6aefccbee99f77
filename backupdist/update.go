package backupdist

import (
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// update is a job's newest assignment, ready to be sent.
type update struct {
	whole, compressed, delta encoding

	s   *Server
	a   *assignment.Assignment
	cut *assignment.Cut // of a
}

func newUpdate(base, a *assignment.Assignment, cut *assignment.Cut, s *Server) *update {
	u := &update{s: s, a: a, cut: cut}
	u.whole.make = func() (*wire.Frame, error) { s.m.encodes.WithLabelValues("whole").Inc(); return wire.WholeFrame(a) }
	u.compressed.make = func() (*wire.Frame, error) {
		s.m.encodes.WithLabelValues("compressed").Inc()
		f, err := wire.WholeFrame(a)
		if err != nil {
			return nil, err
		}
		return f.Compressed(), nil
	}
	u.delta.make = func() (*wire.Frame, error) {
		s.m.encodes.WithLabelValues("delta").Inc()
		return wire.DeltaFrame(base, a)
	}
	return u
}

// fetched is the encoding that is asked for by Fetch.
func (u *update) fetched(r *slicerv1.FetchRequest) *encoding {
	switch {
	case r.GetPart() != "" && u.a.NumSlices() >= assignment.PartFrom:
		return u.s.part(nil, u.cut.Part(r.GetPart()))
	case r.GetCompressed():
		return &u.compressed
	}
	return &u.whole
}

// part is the encoding of a part, which is for one subscriber.
func (s *Server) part(base, a *assignment.Assignment) *encoding {
	return &encoding{make: func() (*wire.Frame, error) { s.m.encodes.WithLabelValues("part").Inc(); return wire.PartFrame(base, a) }}
}

// encoding is made, and marshalled, by the first that sends it, and shared.
type encoding struct {
	make func() (*wire.Frame, error)
	once sync.Once
	msgs []*grpc.PreparedMsg
	size int
	err  error
}

// send sends the encoding, and returns its size in bytes.
func (e *encoding) send(stream grpc.ServerStream) (int, error) {
	if !plain(stream) {
		return e.sendUnshared(stream)
	}
	e.once.Do(func() { e.prepare(stream) })
	if e.err != nil {
		return 0, e.err
	}
	for _, m := range e.msgs {
		if err := stream.SendMsg(m); err != nil {
			return 0, err
		}
	}
	return e.size, nil
}

func (e *encoding) prepare(stream grpc.ServerStream) {
	f, err := e.make()
	if err != nil {
		e.err = status.Errorf(codes.Internal, "the assignment does not encode: %v", err)
		return
	}
	e.size = len(f.Data)
	for m := range f.Responses() {
		p := new(grpc.PreparedMsg)
		if e.err = p.Encode(stream, m); e.err != nil {
			return
		}
		e.msgs = append(e.msgs, p)
	}
}

func (e *encoding) sendUnshared(stream grpc.ServerStream) (int, error) {
	f, err := e.make()
	if err != nil {
		return 0, status.Errorf(codes.Internal, "the assignment does not encode: %v", err)
	}
	for m := range f.Responses() {
		if err := stream.SendMsg(m); err != nil {
			return 0, err
		}
	}
	return len(f.Data), nil
}

// plain reports whether messages prepared for one plain stream are good for another:
// not if a client compresses or speaks another codec, or if that cannot be told.
func plain(stream grpc.ServerStream) bool {
	s, ok := grpc.ServerTransportStreamFromContext(stream.Context()).(interface {
		SendCompress() string
		ContentSubtype() string
	})
	return ok && s.SendCompress() == "" && (s.ContentSubtype() == "" || s.ContentSubtype() == "proto")
}
