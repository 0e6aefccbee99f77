package etcdstore

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/credentials"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/porttest"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/store/etcdstore/etcdtest"
	"github.com/slicer-project/slicer/assignment/waittest"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
)

// says checks that an error is ErrUnavailable and tells the cause.
func says(t *testing.T, err error, want string) {
	t.Helper()
	if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want one that is %v and says %q", err, store.ErrUnavailable, want)
	}
}

// whyWithin is how long calls try that are to fail and say why: all of it, and for so long
// that a busy machine finds out why.
const whyWithin = 4 * time.Second

// whyOf makes a call that is to fail, and returns its error. On a machine that is starved a call
// may have had no time to find out why: then it is made again.
func whyOf(t *testing.T, why string, call func(ctx context.Context) error) error {
	t.Helper()
	for tries := 1; ; tries++ {
		stop := waittest.Starving()
		ctx, cancel := context.WithTimeout(t.Context(), whyWithin)
		err := call(ctx)
		cancel()
		if starved := stop(); starved < whyWithin/8 || tries == 10 || err != nil && strings.Contains(err.Error(), why) {
			return err
		}
	}
}

// all are calls of each kind that the client makes, and those that begin a stream.
func all(s *Store) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"check":      func(ctx context.Context) error { return s.Check(ctx, false) },
		"check both": func(ctx context.Context) error { return s.Check(ctx, true) },
		"get job":    func(ctx context.Context) error { _, err := s.GetJob(ctx, "j"); return err },
		"read":       func(ctx context.Context) error { _, err := s.Read(ctx, "j"); return err },
		"put job": func(ctx context.Context) error {
			_, err := s.PutJob(ctx, assignment.JobConfig{Name: "k"}, store.AnyVersion)
			return err
		},
		"watch": func(ctx context.Context) error { _, err := s.Watch(ctx); return err },
		"register": func(ctx context.Context) error {
			_, err := s.Register(ctx, store.Candidate{ID: "b", Address: "h:1"})
			return err
		},
	}
}

// TestOpenSaysWhy opens stores that refuse connections, or speak otherwise than the
// store's URL says: the error tells the cause, and not only that no answer came.
func TestOpenSaysWhy(t *testing.T) {
	t.Parallel()
	free, err := porttest.Free(1)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	secure, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}})
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() {
		for {
			c, err := secure.Accept()
			if err != nil {
				return
			}
			served.Go(func() {
				_ = c.(*tls.Conn).Handshake()
				c.Close()
			})
		}
	})
	t.Cleanup(func() { secure.Close(); served.Wait() })
	for _, c := range []struct {
		name, endpoint, want string
		tls                  credentials.TransportCredentials
	}{
		{"refused", free[0], "connection refused", nil},
		{"plain text to TLS", secure.Addr().String(), "TLS", nil},
		{"TLS to plain text", etcdtest.Start(t)[0], "plain text", credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12})},
		{"another's certificate", secure.Addr().String(), "certificate", credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12})},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			err := whyOf(t, c.want, func(ctx context.Context) error {
				s, err := Open(ctx, Config{Endpoints: []string{c.endpoint}, TLS: c.tls})
				if err == nil {
					s.Close()
				}
				return err
			})
			t.Log(err)
			says(t, err, c.want)
		})
	}
}

// TestLostSaysWhy stops an etcd under a store: every call tells the cause, and Check is
// well again when etcd is.
func TestLostSaysWhy(t *testing.T) {
	t.Parallel()
	c := etcdtest.NewCluster(t, 1)
	s := open(t, Config{Endpoints: c.Endpoints()})
	putJob(t, s, "j")
	c.Stop(0)
	var calls sync.WaitGroup
	for name, call := range all(s) {
		calls.Go(func() {
			err := whyOf(t, "connection refused", call)
			t.Logf("%s: %v", name, err)
			says(t, err, "connection refused")
		})
	}
	calls.Wait()
	c.Restart(t, 0)
	for _, write := range []bool{false, true} {
		waittest.Eventually(t, waittest.Patience, "the store works", func() bool { return s.Check(t.Context(), write) == nil })
	}
}

// TestNoQuorumSaysWhy stops two of three members.
func TestNoQuorumSaysWhy(t *testing.T) {
	t.Parallel()
	c := etcdtest.NewCluster(t, 3)
	s := open(t, Config{Endpoints: c.Endpoints()[:1]})
	c.Stop(1)
	c.Stop(2)
	for _, write := range []bool{false, true} {
		waittest.Eventually(t, waittest.Patience, "the leader is lost", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			err := s.Check(ctx, write)
			return errors.Is(err, store.ErrUnavailable) && strings.Contains(err.Error(), "no leader")
		})
	}
	c.Restart(t, 1)
	waittest.Eventually(t, waittest.Patience, "the store works", func() bool { return s.Check(t.Context(), true) == nil })
}

// TestNoSpace fills an etcd up to its quota: it can be read and not written, and both
// show, also while nothing is written.
func TestNoSpace(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := etcdtest.NewCluster(t, 1, func(cfg *embed.Config) { cfg.QuotaBackendBytes = 4 << 20 })
	s := open(t, Config{Endpoints: c.Endpoints()})
	putJob(t, s, "j")
	before, err := s.Usage(ctx)
	if err != nil || before.Quota != 4<<20 || before.Size == 0 || before.InUse == 0 || before.InUse > before.Size || before.Compacted != 0 || before.Uncompacted < 2 {
		t.Fatalf("usage %+v, %v", before, err)
	}
	rev, err := s.Revision(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Check(ctx, true); err != nil {
		t.Fatal(err)
	}
	if now, err := s.Revision(ctx); now != rev || err != nil {
		t.Errorf("the check has made revision %d of %d: %v", now, rev, err)
	}
	for i := 0; err == nil; i++ {
		if i == 1000 {
			t.Fatal("etcd does not fill")
		}
		_, err = s.client.Put(ctx, "/another", strings.Repeat("x", 1<<20))
	}
	if err := s.Check(ctx, false); err != nil {
		t.Errorf("the store cannot be read: %v", err)
	}
	says(t, s.Check(ctx, true), "space exceeded")
	_, err = s.PutJob(ctx, assignment.JobConfig{Name: "k"}, store.AnyVersion)
	says(t, err, "space exceeded")
	_, err = s.Register(ctx, store.Candidate{ID: "b", Address: "h:1"})
	says(t, err, "space exceeded")

	// What an operator does about it.
	if rev, err = s.Revision(ctx); err != nil {
		t.Fatal(err)
	}
	for range 2 { // again is no error
		if err := s.Compact(ctx, rev); err != nil {
			t.Fatal(err)
		}
	}
	after, err := s.Usage(ctx)
	if err != nil || after.Compacted != rev || after.Uncompacted != 0 || after.Size <= before.Size {
		t.Errorf("usage %+v, %v; compacted at %d", after, err, rev)
	}
	if _, err := s.client.Delete(ctx, "/another"); err != nil {
		t.Logf("delete: %v", err)
	}
	if _, err := s.client.Defragment(ctx, c.Endpoints()[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := s.client.AlarmDisarm(ctx, &clientv3.AlarmMember{}); err != nil {
		t.Fatal(err)
	}
	waittest.Eventually(t, waittest.Patience, "the store can be written", func() bool { return s.Check(ctx, true) == nil })
}

// TestRegistrationIsMended changes the record of a registered assigner in every way: it is
// written anew, unless another process has taken the id.
func TestRegistrationIsMended(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	cfg := config(t)
	cfg.RegistrationTTL = 2 * time.Second
	s := open(t, cfg)
	me := store.Candidate{ID: "a", Address: "h:1", Zone: "z"}
	r, err := s.Register(ctx, me)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	// registered waits until that is what there is. What was there meanwhile may not be
	// seen, since the newest replaces it.
	registered := func(want store.Candidate) {
		t.Helper()
		w, err := s.Candidates(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		ctx, cancel := context.WithTimeout(ctx, waittest.Patience)
		defer cancel()
		for {
			cs, _, err := w.Next(ctx)
			if err != nil {
				t.Fatalf("%v, while %v is wanted", err, want)
			}
			if slices.Equal(cs, []store.Candidate{want}) {
				return
			}
		}
	}
	registered(me)
	key := s.layout.EncodeCandidate(me).Key
	under := func() (lease clientv3.LeaseID) {
		t.Helper()
		waittest.Eventually(t, waittest.Patience, "there is a record", func() bool {
			resp, err := s.client.Get(ctx, key)
			if err != nil {
				t.Fatal(err)
			}
			if len(resp.Kvs) == 1 {
				lease = clientv3.LeaseID(resp.Kvs[0].Lease)
			}
			return lease != 0
		})
		return lease
	}
	put := func(value string) {
		t.Helper()
		if _, err := s.client.Put(ctx, key, value); err != nil {
			t.Fatal(err)
		}
	}
	// leased puts it under the registration's lease, which a machine that stands still for
	// two seconds loses.
	leased := func(value string) {
		t.Helper()
		waittest.Eventually(t, waittest.Patience, "put under the lease", func() bool {
			registered(me)
			_, err := s.client.Put(ctx, key, value, clientv3.WithLease(under()))
			if err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
				t.Fatal(err)
			}
			return err == nil
		})
	}
	other := store.Candidate{ID: "a", Address: "h:2"}
	for i, spoil := range []func(){
		func() { put("junk") },
		func() { leased("junk") },
		func() {
			if _, err := s.client.Delete(ctx, key); err != nil {
				t.Fatal(err)
			}
		},
		func() { leased(string(s.layout.EncodeCandidate(other).Value)) },
		func() { // junk that no lease ends
			lease := under()
			put("junk")
			if _, err := s.client.Revoke(ctx, lease); err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
				t.Fatal(err)
			}
		},
	} {
		spoil()
		waittest.Eventually(t, waittest.Patience, fmt.Sprint("written anew, ", i), func() bool { n, err := r.State(); return n > i && err == nil })
		registered(me)
	}
	// A newer process of the same id wins.
	r2, err := s.Register(ctx, other)
	if err != nil {
		t.Fatal(err)
	}
	defer r2.Close()
	registered(other)
	waittest.Eventually(t, waittest.Patience, "the conflict is told", func() bool { _, err := r.State(); return errors.Is(err, store.ErrConflict) })
	waittest.Eventually(t, waittest.Patience, "the newer one is registered", func() bool { _, err := r2.State(); return err == nil })
}
