// Package etcdtest runs etcd in tests of code that stores data in it.
package etcdtest

import (
	"context"
	"testing"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/feature"

	"github.com/atoll-dev/atoll/internal/embeddedetcd"
)

// Curve is the curve of etcd's certificates in tests. Each resource of a server has its own connection, and with the default curve their
// handshakes cost a fifth of the start of a server.
const Curve = "P-256"

// Start runs an etcd until the end of the test.
func Start(t testing.TB) *embeddedetcd.Server {
	t.Helper()
	server, err := embeddedetcd.Start(t.Context(), embeddedetcd.Config{Directory: t.TempDir(), UnsafeNoFsync: true, WALSizeBytes: 5000, ECDSACurve: Curve})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	return server
}

// NewClient returns a client that is closed at the end of the test.
func NewClient(t testing.TB, server *embeddedetcd.Server) *clientv3.Client {
	t.Helper()
	client := Connect(t, server)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Connect returns a client that the caller closes.
func Connect(t testing.TB, server *embeddedetcd.Server) *clientv3.Client {
	t.Helper()
	tls, err := transport.TLSInfo{CertFile: server.CertFile, KeyFile: server.KeyFile, TrustedCAFile: server.CAFile}.ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{server.Endpoint}, TLS: tls, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// DetectFeatures returns when upstream libraries know the features of an etcd. In a server, its first storage detects them.
func DetectFeatures(t testing.TB, client *clientv3.Client) {
	t.Helper()
	feature.DefaultFeatureSupportChecker.CheckClient(context.WithoutCancel(t.Context()), client, storage.RequestWatchProgress)
	for !feature.DefaultFeatureSupportChecker.Supports(storage.RequestWatchProgress) {
		if _, err := client.Get(t.Context(), "/"); err != nil {
			t.Fatal(err)
		}
	}
}
