// Package etcdkeys scans the keys of a shard in etcd, below the registries: it counts the keys of logical clusters and the
// size of their values, and purges orphans, the keys of resources that are not served. It does not decode values, and deletes
// only what no API can delete. It also monitors the space that etcd has left.
package etcdkeys

import (
	"context"
	"fmt"
	"path"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apiserver/pkg/storage/storagebackend"

	"github.com/atoll-dev/atoll/internal/etcddial"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

const (
	// opsPerRequest keeps transactions below etcd's default limit of 128 operations.
	opsPerRequest = 100
	// keysPerRequest is how many keys a request lists that are then deleted.
	keysPerRequest = 10000
)

// Config configures a Scanner.
type Config struct {
	Transport storagebackend.TransportConfig
	// Prefix is the prefix of all keys, such as "/registry".
	Prefix   string
	Registry *storage.Registry
}

// Scanner scans the keys of a shard. It connects to etcd on first use.
type Scanner struct {
	cfg    Config
	prefix string

	mu      sync.Mutex
	client  *clientv3.Client
	orphans *orphans
}

// New returns a Scanner. It must be closed.
func New(cfg Config) *Scanner {
	return &Scanner{cfg: cfg, prefix: path.Join("/", cfg.Prefix)}
}

// Close closes the connection.
func (s *Scanner) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client == nil {
		return nil
	}
	client := s.client
	s.client = nil
	return client.Close()
}

// Connect returns the client of the scanner, which dials in the background. Close closes it.
func (s *Scanner) Connect() (*clientv3.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client != nil {
		return s.client, nil
	}
	client, err := Connect(s.cfg.Transport)
	if err != nil {
		return nil, err
	}
	s.client = client
	return client, nil
}

// Connect returns an etcd client, which dials in the background. It must be closed.
func Connect(config storagebackend.TransportConfig) (*clientv3.Client, error) {
	clientConfig, err := etcddial.NewConfig(config)
	if err != nil {
		return nil, err
	}
	client, err := clientv3.New(clientConfig)
	if err != nil {
		return nil, fmt.Errorf("connecting to etcd: %w", err)
	}
	return client, nil
}

// prefixOf returns the prefix of the keys of a storage, or of one logical cluster in it.
func (s *Scanner) prefixOf(storagePrefix string, cluster ...string) string {
	return path.Join(append([]string{s.prefix, storagePrefix}, cluster...)...) + "/"
}

// countPrefixes returns the number of keys below each prefix.
func (s *Scanner) countPrefixes(ctx context.Context, prefixes []string) ([]int64, error) {
	client, err := s.Connect()
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
		for _, result := range response.Responses {
			found = append(found, result.GetResponseRange().Count)
		}
	}
	return found, nil
}
