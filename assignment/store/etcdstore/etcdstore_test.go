package etcdstore

import (
	"context"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/store/etcdstore/etcdtest"
	"github.com/slicer-project/slicer/assignment/store/storetest"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestMain(m *testing.M) { etcdtest.Main(m) }

// config is of a store that this test has to itself, and whose etcd may be slow.
func config(t testing.TB) Config {
	return Config{Endpoints: etcdtest.Start(t), Prefix: etcdtest.Prefix(t), Keep: 64, RequestTimeout: time.Minute}
}

// open returns a handle that is closed when the test ends.
func open(t testing.TB, cfg Config) *Store {
	t.Helper()
	s, err := Open(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Fixture {
		cfg := config(t)
		return storetest.Fixture{
			Open:   func() (store.Backend, error) { return Open(t.Context(), cfg) },
			Shared: true,
			Keep:   cfg.Keep,
			Raw:    func() (storetest.Raw, error) { return newRaw(cfg), nil },
		}
	})
}

// raw is a store's records in etcd.
type raw struct {
	client *clientv3.Client
	prefix string
}

func newRaw(cfg Config) *raw {
	client, err := clientv3.New(clientv3.Config{Endpoints: cfg.Endpoints})
	if err != nil {
		panic(err)
	}
	return &raw{client, cfg.Prefix + "/"}
}

func (r *raw) Keys() (keys []string, err error) {
	resp, err := r.client.Get(context.Background(), r.prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return nil, err
	}
	for _, kv := range resp.Kvs {
		keys = append(keys, string(kv.Key))
	}
	return keys, nil
}

func (r *raw) Get(key string) ([]byte, error) {
	resp, err := r.client.Get(context.Background(), key)
	if err != nil || len(resp.Kvs) == 0 {
		return nil, err
	}
	return resp.Kvs[0].Value, nil
}

func (r *raw) Put(key string, value []byte) error {
	_, err := r.client.Put(context.Background(), key, string(value))
	return err
}

func (r *raw) Delete(key string) error {
	_, err := r.client.Delete(context.Background(), key)
	return err
}

func (r *raw) Close() error { return r.client.Close() }
