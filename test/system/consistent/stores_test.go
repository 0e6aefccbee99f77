package consistent

import (
	"context"
	"maps"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/slicer-project/slicer/assignment/store/etcdstore/etcdtest"
	"github.com/slicer-project/slicer/lease"
	etcdlease "github.com/slicer-project/slicer/lease/etcd"
	"github.com/slicer-project/slicer/lease/remote"
	"github.com/slicer-project/slicer/lease/serve"
)

// store is a lease store as a process reaches it.
type store struct {
	readers func(t *testing.T) lease.Readers // a connection of its own
	writers lease.Writers
	kill    func()
}

// stores are the two that there are.
var stores = map[string]func(t *testing.T) store{
	"served": func(t *testing.T) store {
		st, err := serve.Open(t.Context(), serve.Config{Storage: &storage{}})
		if err != nil {
			t.Fatal(err)
		}
		lis, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server := grpc.NewServer()
		st.Register(server)
		served := make(chan struct{})
		go func() {
			defer close(served)
			if err := server.Serve(lis); err != nil {
				t.Errorf("Serve: %v", err)
			}
		}()
		kill := sync.OnceFunc(func() { server.Stop(); <-served })
		t.Cleanup(func() { kill(); st.Close() })
		readers := func(t *testing.T) lease.Readers {
			conn, err := grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
			return remote.New(conn)
		}
		return store{readers, st, kill}
	},
	"etcd": func(t *testing.T) store {
		c := etcdtest.NewCluster(t, 1)
		open := func(t *testing.T) *etcdlease.Store {
			st, err := etcdlease.Open(t.Context(), etcdlease.Config{Endpoints: c.Endpoints(), Prefix: etcdtest.Prefix(t)})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { st.Close() })
			return st
		}
		st := open(t)
		return store{func(*testing.T) lease.Readers { return st }, st, sync.OnceFunc(func() { c.Stop(0) })}
	},
}

// storage keeps the served store's records.
type storage struct {
	mu      sync.Mutex
	records map[string][]byte
}

func (m *storage) Load(context.Context) (map[string][]byte, error) { return maps.Clone(m.records), nil }

func (m *storage) Put(_ context.Context, records map[string][]byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.records == nil {
		m.records = map[string][]byte{}
	}
	maps.Copy(m.records, records)
	return nil
}
