package page_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/access/enforce"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/store/pebblestore"
	"github.com/slicer-project/slicer/assignment/waittest"
	"github.com/slicer-project/slicer/cmd/internal/page"
	"github.com/slicer-project/slicer/cmd/internal/plane"
	"github.com/slicer-project/slicer/distributor"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/test/kit/bed"
)

// limit bounds every wait; nothing is asserted on it.
const limit = waittest.Patience

// rig is a control plane in this process with the page of its assigner.
type rig struct {
	t        *testing.T
	db       *pebblestore.Store
	all      *plane.Plane
	at       string // of the Distributor
	assigner string
}

func newRig(t *testing.T, rights *enforce.Rights) *rig {
	t.Helper()
	db, err := pebblestore.Open(t.TempDir(), pebblestore.Config{Timeout: waittest.Patience})
	if err != nil {
		t.Fatal(err)
	}
	lis, assigner := bed.Listen(t), bed.Listen(t)
	r := &rig{t: t, db: db, at: lis.Addr().String(), assigner: assigner.Addr().String()}
	cfg := plane.Config{ID: "a", Store: db, Distributor: lis, Backup: bed.Listen(t), Credentials: insecure.NewCredentials(), Rights: rights}
	if rights == nil { // with a policy the assigner is within the process
		cfg.Assigner = assigner
	}
	r.all, err = plane.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if rights != nil {
		assigner.Close()
	}
	bed.CloseAtEnd(t, db.Close)
	bed.CloseAtEnd(t, r.all.Close)
	return r
}

// job makes a job, with tasks that report every 100 ms.
func (r *rig) job(cfg assignment.JobConfig, tasks int) []*slicelet.Slicelet {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), limit)
	defer cancel()
	if cfg.HeartbeatTimeout == 0 {
		cfg.HeartbeatTimeout = time.Second
	}
	if _, err := r.db.PutJob(ctx, cfg.WithDefaults(), store.NoVersion); err != nil {
		r.t.Fatal(err)
	}
	var all []*slicelet.Slicelet
	for i := range tasks {
		s, err := slicelet.New(slicelet.Config{Job: cfg.Name, Task: fmt.Sprintf("t-%d", i), Address: fmt.Sprintf("127.0.0.1:%d", 100+i), Distributors: []string{r.at}})
		if err != nil {
			r.t.Fatal(err)
		}
		bed.CloseAtEnd(r.t, s.Close)
		all = append(all, s)
	}
	return all
}

// show shows a page at an address of its own, and returns its URL.
func show(t *testing.T, cfg page.Config) string {
	t.Helper()
	p, lis := page.New(cfg), bed.Listen(t)
	bed.ServeHTTP(t, lis, p, p.Close)
	return "http://" + lis.Addr().String() + "/"
}

func (r *rig) page() string {
	return show(r.t, page.Config{Kind: "slicer serve", ID: "a", Admin: page.AdminOf(r.all.RegisterAdmin)})
}

// throughDistributor is the page of a Distributor of its own.
func (r *rig) throughDistributor() string {
	r.t.Helper()
	d, err := distributor.New(distributor.Config{ID: "d2", Assigners: []string{r.assigner}, DialOptions: []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}})
	if err != nil {
		r.t.Fatal(err)
	}
	bed.CloseAtEnd(r.t, d.Close)
	return show(r.t, page.Config{Kind: "distributor", ID: "d2", Admin: page.AdminOf(d.Register)})
}

// stream is one that a viewer has open.
type stream struct {
	t      *testing.T
	events chan event
	code   int
	body   string // of a refusal
}

type event struct {
	name string
	data []byte
}

// watch opens a stream, which ends with the test.
func watch(t *testing.T, url string) *stream {
	t.Helper()
	return watchWith(t, &http.Client{Transport: &http.Transport{}}, url)
}

func watchWith(t *testing.T, client *http.Client, url string) *stream {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	s := &stream{t: t, events: make(chan event), code: resp.StatusCode}
	if resp.StatusCode != http.StatusOK {
		data, _ := io.ReadAll(resp.Body)
		s.body = string(data)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(s.events)
		defer resp.Body.Close()
		lines := bufio.NewScanner(resp.Body)
		lines.Buffer(nil, 16<<20)
		var e event
		for lines.Scan() {
			if name, ok := bytes.CutPrefix(lines.Bytes(), []byte("event: ")); ok {
				e = event{name: string(name)}
			} else if data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: ")); ok {
				e.data = bytes.Clone(data)
				select {
				case s.events <- e:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		client.CloseIdleConnections()
	})
	return s
}

// until reads events of a name into v until they are as wanted.
func until[T any](s *stream, name string, want func(*T) bool) *T {
	s.t.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	var last []byte
	for {
		select {
		case e, ok := <-s.events:
			if !ok {
				s.t.Fatalf("the stream has ended (%d %s), %s was %s", s.code, s.body, name, last)
			}
			if e.name != name {
				continue
			}
			v := new(T)
			if last = e.data; json.Unmarshal(e.data, v) != nil {
				s.t.Fatalf("%s: %s", name, e.data)
			}
			if want(v) {
				return v
			}
		case <-timer.C:
			s.t.Fatalf("%s does not become what is wanted, it was %s", name, last)
		}
	}
}

// get asks for a path, with or without a certificate's name.
func get(t *testing.T, url string) (code int, header http.Header, body string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: limit}
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(data)
}

// ask sends the tasks of a job requests for keys, each to its owner, n times a second each,
// until the test ends or the function that it returns is called.
func ask(t *testing.T, tasks []*slicelet.Slicelet, n int, keys ...string) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticks := time.NewTicker(time.Second / time.Duration(n))
		defer ticks.Stop()
		for turn := 0; ; turn++ {
			select {
			case <-ticks.C:
			case <-ctx.Done():
				return
			}
			for _, key := range keys {
				handle(tasks, key, turn)
			}
		}
	}()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}

// handle is a request at one of the key's owners.
func handle(tasks []*slicelet.Slicelet, key string, turn int) {
	a := tasks[0].Assignment()
	if a == nil {
		return
	}
	owners := a.Lookup(assignment.KeyOf(key))
	for _, s := range tasks {
		if s.Task() == owners.At(turn%owners.Len()).Name {
			s.Handle(key)
		}
	}
}

// readyWith waits until a process can do its work.
func readyWith(t *testing.T, client *http.Client, url string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	ticks := time.NewTicker(20 * time.Millisecond)
	defer ticks.Stop()
	for {
		resp, err := client.Get(url + "/readyz")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case <-ticks.C:
		case <-ctx.Done():
			t.Fatalf("%s is not ready: %v", url, err)
		}
	}
}
