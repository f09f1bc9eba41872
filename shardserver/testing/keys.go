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

// Keys returns all keys in the shard's etcd that contain the text, without values, sorted.
func (s *Shard) Keys(t testing.TB, containing string) []string {
	t.Helper()
	keys := slices.Sorted(maps.Keys(s.stored(t, clientv3.WithKeysOnly())))
	return slices.DeleteFunc(keys, func(key string) bool { return !strings.Contains(key, containing) })
}

// Stored returns all keys and values in the shard's etcd.
func (s *Shard) Stored(t testing.TB) map[string][]byte {
	t.Helper()
	return s.stored(t)
}

func (s *Shard) stored(t testing.TB, options ...clientv3.OpOption) map[string][]byte {
	t.Helper()
	etcd := s.etcd(t)
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

// DeleteKey deletes a key from the shard's etcd.
func (s *Shard) DeleteKey(t testing.TB, key string) {
	t.Helper()
	etcd := s.etcd(t)
	defer etcd.Close()
	if _, err := etcd.Delete(context.Background(), key); err != nil {
		t.Fatal(err)
	}
}

// ReplaceInKey replaces a text in the value of a key of the shard's etcd, as an older version of the server may have written it.
func (s *Shard) ReplaceInKey(t testing.TB, key, old, text string) {
	t.Helper()
	etcd := s.etcd(t)
	defer etcd.Close()
	response, err := etcd.Get(context.Background(), key)
	if err != nil || len(response.Kvs) != 1 {
		t.Fatalf("reading %s: %v, %v", key, response, err)
	}
	value := string(response.Kvs[0].Value)
	if !strings.Contains(value, old) {
		t.Fatalf("%s does not contain %s", key, old)
	}
	if _, err := etcd.Put(context.Background(), key, strings.ReplaceAll(value, old, text)); err != nil {
		t.Fatal(err)
	}
}

// CopyKey copies the value of a key of the shard's etcd to another key, without a text, as an older version of the server may
// have written it.
func (s *Shard) CopyKey(t testing.TB, from, to, without string) {
	t.Helper()
	etcd := s.etcd(t)
	defer etcd.Close()
	response, err := etcd.Get(context.Background(), from)
	if err != nil || len(response.Kvs) != 1 {
		t.Fatalf("reading %s: %v, %v", from, response, err)
	}
	value := strings.Replace(string(response.Kvs[0].Value), without, "", 1)
	if without != "" && value == string(response.Kvs[0].Value) {
		t.Fatalf("%s does not contain %s", from, without)
	}
	if _, err := etcd.Put(context.Background(), to, value); err != nil {
		t.Fatal(err)
	}
}

// Write is one change of one key in the shard's etcd.
type Write struct {
	Key string
	// Value is nil if the key was deleted.
	Value []byte
	// Revision is that of the transaction, which may have written other keys, too.
	Revision int64
}

// Revision returns the current revision of the shard's etcd, for Writes.
func (s *Shard) Revision(t testing.TB) int64 {
	t.Helper()
	etcd := s.etcd(t)
	defer etcd.Close()
	return revision(t, etcd)
}

// Writes returns the changes in the shard's etcd after a revision, in order.
func (s *Shard) Writes(t testing.TB, after int64) []Write {
	t.Helper()
	etcd := s.etcd(t)
	defer etcd.Close()
	last := revision(t, etcd)
	if last == after {
		return nil
	}
	var writes []Write
	for response := range etcd.Watch(t.Context(), "\x00", clientv3.WithFromKey(), clientv3.WithRev(after+1)) {
		if err := response.Err(); err != nil {
			t.Fatal(err)
		}
		for _, event := range response.Events {
			if event.Kv.ModRevision > last {
				return writes
			}
			write := Write{Key: string(event.Kv.Key), Revision: event.Kv.ModRevision}
			if event.Type == clientv3.EventTypePut {
				write.Value = event.Kv.Value
			}
			writes = append(writes, write)
		}
		if response.Header.Revision >= last {
			return writes
		}
	}
	t.Fatal("the watch of etcd ended")
	return nil
}

func revision(t testing.TB, etcd *clientv3.Client) int64 {
	t.Helper()
	response, err := etcd.Get(context.Background(), "revision")
	if err != nil {
		t.Fatal(err)
	}
	return response.Header.Revision
}

func (s *Shard) etcd(t testing.TB) *clientv3.Client {
	t.Helper()
	config := s.Server.StorageTransport()
	tls, err := transport.TLSInfo{CertFile: config.CertFile, KeyFile: config.KeyFile, TrustedCAFile: config.TrustedCAFile}.ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	etcd, err := clientv3.New(clientv3.Config{Endpoints: config.ServerList, TLS: tls})
	if err != nil {
		t.Fatal(err)
	}
	return etcd
}
