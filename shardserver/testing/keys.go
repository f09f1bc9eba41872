package testing

import (
	"context"
	"strings"
	"testing"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Keys returns all keys in the shard's etcd that contain the text, without their values.
func (s *Shard) Keys(t testing.TB, containing string) []string {
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
	response, err := etcd.Get(context.Background(), "/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, kv := range response.Kvs {
		if strings.Contains(string(kv.Key), containing) {
			keys = append(keys, string(kv.Key))
		}
	}
	return keys
}
