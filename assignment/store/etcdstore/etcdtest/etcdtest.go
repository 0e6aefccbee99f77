// Package etcdtest gives tests a real etcd, in their own process, on free
// loopback ports and in a temporary folder:
//
//	func TestMain(m *testing.M) { etcdtest.Main(m) }
//
//	func TestSomething(t *testing.T) {
//		st, err := etcdstore.Open(t.Context(), etcdstore.Config{
//			Endpoints: etcdtest.Start(t), Prefix: etcdtest.Prefix(t),
//		})
//		...
//	}
//
// One server serves all tests of a test binary; each has a prefix to itself.
// NewCluster is for tests that stop members.
package etcdtest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/slicer-project/slicer/assignment/porttest"
	"github.com/slicer-project/slicer/assignment/waittest"
)

// shared is the server of this test binary.
var shared struct {
	once    sync.Once
	dir     string
	cluster *Cluster
	err     error
	prefix  atomic.Int64
	peers   atomic.Bool // there was a cluster of several members
}

// leftByPeers are what the HTTP connections between members leave running.
var leftByPeers = []string{
	"net/http.(*persistConn).readLoop", "net/http.(*persistConn).writeLoop",
	"net/http.(*conn).serve", "net/http.(*connReader).backgroundRead",
}

// Main runs the tests, parallel ones side by side, stops the shared server, and fails if goroutines are left
// other than those that leaks allows.
func Main(m *testing.M, leaks ...goleak.Option) {
	waittest.SideBySide()
	code := m.Run()
	if shared.cluster != nil {
		shared.cluster.close()
		_ = os.RemoveAll(shared.dir)
	}
	if code == 0 {
		for _, f := range leftByPeers {
			if shared.peers.Load() {
				leaks = append(leaks, goleak.IgnoreAnyFunction(f))
			}
		}
		if err := goleak.Find(leaks...); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// Start returns the endpoints, host:port, of the server that all tests of this
// binary share.
func Start(t testing.TB) []string {
	t.Helper()
	shared.once.Do(func() {
		if shared.dir, shared.err = os.MkdirTemp("", "etcdtest"); shared.err == nil {
			shared.cluster, shared.err = startPatiently(shared.dir, 1)
		}
	})
	if shared.err != nil {
		t.Fatalf("etcd: %v", shared.err)
	}
	return shared.cluster.Endpoints()
}

// Prefix returns a prefix that no other test uses.
func Prefix(t testing.TB) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' {
			return r
		}
		return '-'
	}, t.Name())
	return fmt.Sprintf("/%d-%.200s", shared.prefix.Add(1), name)
}

// Cluster is an etcd of one or more members.
type Cluster struct {
	members []*embed.Etcd
	configs []embed.Config
}

// NewCluster starts n members, with their configs changed by the test, and stops them
// when the test ends.
func NewCluster(t testing.TB, n int, change ...func(*embed.Config)) *Cluster {
	t.Helper()
	if n > 1 {
		shared.peers.Store(true)
	}
	c, err := startPatiently(t.TempDir(), n, change...)
	if err != nil {
		t.Fatalf("etcd: %v", err)
	}
	t.Cleanup(c.close)
	return c
}

// Endpoints are those of all members, also of stopped ones.
func (c *Cluster) Endpoints() []string {
	var out []string
	for _, cfg := range c.configs {
		out = append(out, cfg.ListenClientUrls[0].Host)
	}
	return out
}

// Stop ends one member. It must be running.
func (c *Cluster) Stop(i int) {
	c.members[i].Close()
	c.members[i] = nil
}

// Restart begins a stopped member again, with what it has on disk.
func (c *Cluster) Restart(t testing.TB, i int) {
	t.Helper()
	cfg := c.configs[i]
	m, err := embed.StartEtcd(&cfg)
	if err != nil {
		t.Fatalf("etcd: %v", err)
	}
	c.members[i] = m
}

// RestartAlone is Restart as the only member of a new cluster, with what this one
// has on disk: etcd's --force-new-cluster.
func (c *Cluster) RestartAlone(t testing.TB, i int) {
	t.Helper()
	c.configs[i].ForceNewCluster = true
	defer func() { c.configs[i].ForceNewCluster = false }()
	c.Restart(t, i)
}

// Copy copies what the only member of c, which is stopped, has on disk to the only
// member of another cluster, which has never been started.
func (c *Cluster) Copy(t testing.TB, to *Cluster) {
	t.Helper()
	if err := os.CopyFS(to.configs[0].Dir, os.DirFS(c.configs[0].Dir)); err != nil {
		t.Fatal(err)
	}
}

// RestoreFlags are what "etcdutl snapshot restore" takes to make what the only member of
// c, which has never been started, has on disk.
func (c *Cluster) RestoreFlags() []string {
	cfg := c.configs[0]
	peer := cfg.ListenPeerUrls[0].String()
	return []string{"--data-dir", cfg.Dir, "--name", cfg.Name, "--initial-cluster", cfg.Name + "=" + peer, "--initial-advertise-peer-urls", peer}
}

// Another is the only member of a cluster like c, stopped, at another address.
func (c *Cluster) Another(t testing.TB) *Cluster {
	t.Helper()
	addrs, err := porttest.Free(2)
	if err != nil {
		t.Fatal(err)
	}
	cfg := c.configs[0]
	cfg.Dir = filepath.Join(t.TempDir(), "data")
	cfg.ListenClientUrls, cfg.ListenPeerUrls = []url.URL{{Scheme: "http", Host: addrs[0]}}, []url.URL{{Scheme: "http", Host: addrs[1]}}
	cfg.AdvertiseClientUrls = cfg.ListenClientUrls
	other := &Cluster{members: make([]*embed.Etcd, 1), configs: []embed.Config{cfg}}
	t.Cleanup(other.close)
	return other
}

func (c *Cluster) close() {
	for _, m := range c.members {
		if m != nil {
			m.Close()
		}
	}
}

// startPatiently begins again when another process has taken a port meanwhile.
func startPatiently(dir string, n int, change ...func(*embed.Config)) (c *Cluster, err error) {
	for i := range 5 {
		if c, err = start(filepath.Join(dir, fmt.Sprint(i)), n, change); err == nil {
			return c, nil
		}
	}
	return nil, err
}

// start returns when all members are ready.
func start(dir string, n int, change []func(*embed.Config)) (*Cluster, error) {
	var configs []*embed.Config
	var peers []string
	for i := range n {
		name := fmt.Sprintf("m%d", i)
		addrs, err := porttest.Free(2) // etcd wants to know its peers' ports before it listens
		if err != nil {
			return nil, err
		}
		client, peer := url.URL{Scheme: "http", Host: addrs[0]}, url.URL{Scheme: "http", Host: addrs[1]}
		cfg := embed.NewConfig()
		cfg.Name, cfg.Dir = name, filepath.Join(dir, name)
		cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
		cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
		cfg.TickMs, cfg.ElectionMs = 50, 500
		cfg.UnsafeNoFsync = true
		cfg.LogLevel, cfg.LogOutputs = "fatal", []string{os.DevNull}
		for _, f := range change {
			f(cfg)
		}
		configs = append(configs, cfg)
		peers = append(peers, name+"="+peer.String())
	}
	c := &Cluster{}
	for _, cfg := range configs {
		cfg.InitialCluster = strings.Join(peers, ",")
		c.configs = append(c.configs, *cfg)
		m, err := embed.StartEtcd(cfg)
		if err != nil {
			c.close()
			return nil, err
		}
		c.members = append(c.members, m)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, m := range c.members {
		select {
		case <-m.Server.ReadyNotify():
		case err := <-m.Err():
			c.close()
			return nil, err
		case <-ctx.Done():
			c.close()
			return nil, fmt.Errorf("no leader: %w", ctx.Err())
		}
	}
	return c, nil
}

// Client returns a client of the cluster, for what no store does.
func Client(t testing.TB, c *Cluster) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: c.Endpoints(), Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Free does what an operator does about an etcd without space: it drops what was
// overwritten, and ends the alarm.
func Free(t testing.TB, c *Cluster) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	client := Client(t, c)
	now, err := client.Get(ctx, "x")
	if err == nil {
		_, err = client.Compact(ctx, now.Header.Revision, clientv3.WithCompactPhysical())
	}
	for _, e := range c.Endpoints() {
		if err == nil {
			_, err = client.Defragment(ctx, e)
		}
	}
	if err == nil {
		_, err = client.AlarmDisarm(ctx, &clientv3.AlarmMember{})
	}
	if err != nil {
		t.Fatalf("etcd: %v", err)
	}
}
