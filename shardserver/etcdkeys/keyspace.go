// Package keyspace looks at etcd below all registries: how many keys a logical cluster has, and what of it is left under
// resources that nobody serves any more. It reads keys, never values, and deletes only what no API can delete.
package etcdkeys

import (
	"context"
	"fmt"
	"path"
	"sync"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"k8s.io/apiserver/pkg/storage/storagebackend"

	"github.com/atoll-dev/atoll/shardserver/storage"
)

const (
	dialTimeout = 20 * time.Second
	// opsPerRequest keeps transactions below etcd's default limit of 128 operations.
	opsPerRequest = 100
	// keysPerRequest bounds one answer of a scan.
	keysPerRequest = 10000
)

// Config says where the keys are.
type Config struct {
	Transport storagebackend.TransportConfig
	// Prefix is that of all keys, such as "/registry".
	Prefix   string
	Registry *storage.Registry
}

// Keyspace is a view of a shard's keys. It is created once per process and connects with its first use.
type Keyspace struct {
	cfg    Config
	prefix string

	mu      sync.Mutex
	client  *clientv3.Client
	orphans *orphans
}

// New returns the view. It must be closed.
func New(cfg Config) *Keyspace {
	return &Keyspace{cfg: cfg, prefix: path.Join("/", cfg.Prefix)}
}

// Close ends the connection.
func (k *Keyspace) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.client == nil {
		return nil
	}
	client := k.client
	k.client = nil
	return client.Close()
}

// connection returns the client, which connects in the background.
func (k *Keyspace) connection() (*clientv3.Client, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.client != nil {
		return k.client, nil
	}
	client, err := Connect(k.cfg.Transport)
	if err != nil {
		return nil, err
	}
	k.client = client
	return client, nil
}

// Connect returns a client of etcd, which connects in the background. It must be closed.
func Connect(how storagebackend.TransportConfig) (*clientv3.Client, error) {
	config := clientv3.Config{Endpoints: how.ServerList, DialTimeout: dialTimeout, Logger: zap.NewNop()}
	if how.CertFile != "" || how.KeyFile != "" || how.TrustedCAFile != "" {
		tls, err := transport.TLSInfo{CertFile: how.CertFile, KeyFile: how.KeyFile, TrustedCAFile: how.TrustedCAFile}.ClientConfig()
		if err != nil {
			return nil, fmt.Errorf("reading the etcd certificates: %w", err)
		}
		config.TLS = tls
	}
	client, err := clientv3.New(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to etcd: %w", err)
	}
	return client, nil
}

// below returns the prefix of the keys of a storage, or of one logical cluster in it.
func (k *Keyspace) below(storagePrefix string, cluster ...string) string {
	return path.Join(append([]string{k.prefix, storagePrefix}, cluster...)...) + "/"
}

// counts returns the number of keys below each prefix.
func (k *Keyspace) counts(ctx context.Context, prefixes []string) ([]int64, error) {
	client, err := k.connection()
	if err != nil {
		return nil, err
	}
	found := make([]int64, 0, len(prefixes))
	for len(prefixes) > 0 {
		batch := prefixes[:min(len(prefixes), opsPerRequest)]
		prefixes = prefixes[len(batch):]
		ops := make([]clientv3.Op, 0, len(batch))
		for _, prefix := range batch {
			ops = append(ops, clientv3.OpGet(prefix, clientv3.WithPrefix(), clientv3.WithCountOnly()))
		}
		response, err := client.Txn(ctx).Then(ops...).Commit()
		if err != nil {
			return nil, fmt.Errorf("counting keys: %w", err)
		}
		for _, answer := range response.Responses {
			found = append(found, answer.GetResponseRange().Count)
		}
	}
	return found, nil
}
