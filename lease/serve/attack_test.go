package serve_test

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/lease/remote"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// everyCall sends each call that carries a session.
func everyCall(ctx context.Context, c slicerv1.LeaseServiceClient, session []byte, job string) map[string]error {
	claim, out := &slicerv1.Claim{To: 1}, map[string]error{}
	_, out["RenewSession"] = c.RenewSession(ctx, &slicerv1.RenewSessionRequest{Session: session})
	_, out["JoinJob"] = c.JoinJob(ctx, &slicerv1.JoinJobRequest{Session: session, Job: job})
	_, out["AcquireClaim"] = c.AcquireClaim(ctx, &slicerv1.AcquireClaimRequest{Session: session, Job: job, Claim: claim})
	_, out["ReleaseClaim"] = c.ReleaseClaim(ctx, &slicerv1.ReleaseClaimRequest{Session: session, Job: job, Claim: claim})
	stream, err := c.WatchRecords(ctx, &slicerv1.WatchRecordsRequest{Session: session, Job: job})
	if err == nil {
		_, err = stream.Recv()
	}
	out["WatchRecords"] = err
	_, out["CloseSession"] = c.CloseSession(ctx, &slicerv1.CloseSessionRequest{Session: session})
	return out
}

// guesses are what a stranger may take for the name of a session.
func guesses(seen ...[]byte) (ids [][]byte) {
	ids = append(ids, nil, []byte{}, make([]byte, 16), []byte(strings.Repeat("\xff", 16)), make([]byte, 1<<10))
	for epoch := range uint64(4) {
		for n := range uint64(8) {
			id := epoch<<32 + n // what sessions are numbered by inside
			eight := binary.BigEndian.AppendUint64(nil, id)
			ids = append(ids, eight, append(make([]byte, 8), eight...), append(binary.LittleEndian.AppendUint64(nil, id), make([]byte, 8)...))
		}
	}
	for range 32 {
		id := make([]byte, 16)
		rand.Read(id)
		ids = append(ids, id)
	}
	for _, s := range seen {
		for bit := range 8 * len(s) {
			id := append([]byte(nil), s...)
			id[bit/8] ^= 1 << (bit % 8)
			ids = append(ids, id)
		}
		ids = append(ids, s[:len(s)-1], append(append([]byte(nil), s...), 0))
	}
	return ids
}

// A stranger sends every call with every name of a session that it can think of:
// all are of unknown sessions, a reader keeps its claim, and the assigner its job.
func TestForeignSessionsAreUnknown(t *testing.T) {
	s := open(t, &memory{}, nil)
	defer s.Close()
	addr := served(t, s)
	w, token := lead(t, s, "job")
	honest, err := remote.New(connect(t, addr, "")).OpenReader(t.Context(), time.Minute, "job")
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, err := honest.Acquire(t.Context(), "job", lease.GuardClaim(1)); !ok || err != nil {
		t.Fatal(ok, err)
	}
	stranger := slicerv1.NewLeaseServiceClient(connect(t, addr, ""))
	own := openSession(t, stranger, time.Minute, "job").GetSession()
	logged := binary.BigEndian.AppendUint64(nil, honest.ID()) // what logs and metrics say
	writer := binary.BigEndian.AppendUint64(nil, w.ID())
	for _, id := range append(guesses(own), logged, append(logged, logged...), writer, append(make([]byte, 8), writer...)) {
		for call, err := range everyCall(t.Context(), stranger, id, "job") {
			wantCode(t, fmt.Sprintf("%s of %x", call, id), err, codes.NotFound)
			if err != nil && status.Convert(err).Message() != lease.ErrLost.Error() {
				t.Errorf("%s of %x: the answer tells more than that there is no such session: %v", call, id, err)
			}
		}
	}
	if err := honest.KeepAlive(t.Context()); err != nil {
		t.Errorf("the honest session: %v", err)
	}
	if err := w.KeepAlive(t.Context()); err != nil {
		t.Errorf("the assigner's session: %v", err)
	}
	if st, err := w.State(t.Context(), "job"); err != nil || st.GuardReaders != 1 {
		t.Errorf("%d readers of the guard, %v; want 1", st.GuardReaders, err)
	}
	if again, err := w.Lead(t.Context(), "job"); err != nil || again != token {
		t.Errorf("the assigner leads with token %d, %v; want %d", again, err, token)
	}
}

// A process that has lost its connection goes on over another one.
func TestSessionOutlivesItsConnection(t *testing.T) {
	s := open(t, &memory{}, nil)
	defer s.Close()
	addr := served(t, s)
	lead(t, s, "job")
	first := connect(t, addr, "")
	session := openSession(t, slicerv1.NewLeaseServiceClient(first), time.Minute, "job").GetSession()
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	c := slicerv1.NewLeaseServiceClient(connect(t, addr, ""))
	if _, err := c.RenewSession(t.Context(), &slicerv1.RenewSessionRequest{Session: session}); err != nil {
		t.Errorf("renewal over another connection: %v", err)
	}
	resp, err := c.AcquireClaim(t.Context(), &slicerv1.AcquireClaimRequest{Session: session, Job: "job", Claim: &slicerv1.Claim{To: 1}})
	if err != nil || !resp.GetAcquired() {
		t.Errorf("claim over another connection: %v, %v", resp, err)
	}
}
