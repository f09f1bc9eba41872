package testing

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Keys returns all keys in the shard's etcd that contain the text, without their values, sorted.
func (s *Shard) Keys(t testing.TB, containing string) []string {
	t.Helper()
	keys := slices.Sorted(maps.Keys(s.stored(t, clientv3.WithKeysOnly())))
	return slices.DeleteFunc(keys, func(key string) bool { return !strings.Contains(key, containing) })
}

// Stored returns everything in the shard's etcd, key by key.
func (s *Shard) Stored(t testing.TB) map[string][]byte {
	t.Helper()
	return s.stored(t)
}

func (s *Shard) stored(t testing.TB, options ...clientv3.OpOption) map[string][]byte {
	t.Helper()
	how := s.Server.StorageTransport()
	tls, err := transport.TLSInfo{CertFile: how.CertFile, KeyFile: how.KeyFile, TrustedCAFile: how.TrustedCAFile}.ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	etcd, err := clientv3.New(clientv3.Config{Endpoints: how.ServerList, TLS: tls})
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	response, err := etcd.Get(context.Background(), "\x00", append(options, clientv3.WithFromKey())...)
	if err != nil {
		t.Fatal(err)
	}
	stored := make(map[string][]byte, len(response.Kvs))
	for _, kv := range response.Kvs {
		stored[string(kv.Key)] = kv.Value
	}
	return stored
}
