package page

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// inspections counts how often a job is read, which fails.
type inspections struct {
	slicerv1.UnimplementedAdminServiceServer
	n atomic.Int64
}

func (c *inspections) InspectJob(context.Context, *slicerv1.InspectJobRequest) (*slicerv1.InspectJobResponse, error) {
	c.n.Add(1)
	return nil, status.Error(codes.Unavailable, "it is down")
}

// TestViewersThatComeAndGo: those who connect again and again have no more read than as many who
// stay, and leave no reader behind.
func TestViewersThatComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &inspections{}
		p := New(Config{Admin: c})
		const visits, every = 10_000, time.Millisecond
		refused := 0
		for range visits {
			ctx, leave := context.WithTimeout(t.Context(), every)
			w := &viewed{ResponseRecorder: httptest.NewRecorder()}
			p.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "http://localhost/events?job=cache", nil))
			<-ctx.Done()
			leave()
			if w.Code == http.StatusServiceUnavailable {
				refused++
			}
		}
		most := MaxViewers * (1 + int64(visits*every/failedPause))
		if n := c.n.Load(); n == 0 || n > most {
			t.Errorf("%d readings for %d visits within %s, %d of which were refused: want at most %d", n, visits, visits*every, refused, most)
		}
		time.Sleep(mostPause)
		if n, _ := p.viewers.Taken(); n != 0 {
			t.Errorf("%d viewers are counted when all have left", n)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
}

// viewed is a viewer that notes which bytes it was sent.
type viewed struct {
	*httptest.ResponseRecorder
	sent []*byte
}

func (w *viewed) Write(data []byte) (int, error) {
	w.sent = append(w.sent, &data[0])
	return w.ResponseRecorder.Write(data)
}
func (w *viewed) FlushError() error                { return nil }
func (w *viewed) SetWriteDeadline(time.Time) error { return nil }

// TestViewersShareBytes: what has been read is sent without a copy for each viewer, which a viewer
// that is slow would keep.
func TestViewersShareBytes(t *testing.T) {
	w := &viewed{ResponseRecorder: httptest.NewRecorder()}
	s := sending{v: viewer{all: true}, w: w, to: http.NewResponseController(w), sent: make(map[string]uint64), last: make(map[string][]byte)}
	parts := []part{{event: "slices", version: 1, data: []byte("1")}, {event: "loads", version: 2, data: []byte("2")}}
	if err := s.news(parts); err != nil {
		t.Fatal(err)
	}
	if got, want := w.Body.String(), "event: slices\ndata: 1\n\nevent: loads\ndata: 2\n\n"; got != want {
		t.Errorf("sent %q, want %q", got, want)
	}
	for _, p := range parts {
		shared := false
		for _, at := range w.sent {
			shared = shared || at == &p.data[0]
		}
		if !shared {
			t.Errorf("%s was copied", p.event)
		}
	}
}
