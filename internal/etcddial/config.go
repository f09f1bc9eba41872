package etcddial

import (
	"fmt"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"k8s.io/apiserver/pkg/storage/storagebackend"
)

const (
	dialTimeout = 20 * time.Second
	// A server that disappears without closing its connections is noticed after these, as by the stock storage.
	keepAliveTime, keepAliveTimeout = 30 * time.Second, 10 * time.Second
)

// NewConfig returns the configuration of a client that connects as the stock storage does, in the background. The client logs nothing: it
// returns failures as errors.
func NewConfig(config storagebackend.TransportConfig) (clientv3.Config, error) {
	out := clientv3.Config{
		Endpoints: config.ServerList, DialTimeout: dialTimeout, Logger: zap.NewNop(),
		DialKeepAliveTime: keepAliveTime, DialKeepAliveTimeout: keepAliveTimeout,
		DialOptions: []grpc.DialOption{ConnectParams()},
	}
	if config.CertFile == "" && config.KeyFile == "" && config.TrustedCAFile == "" {
		return out, nil
	}
	tls, err := transport.TLSInfo{CertFile: config.CertFile, KeyFile: config.KeyFile, TrustedCAFile: config.TrustedCAFile}.ClientConfig()
	if err != nil {
		return clientv3.Config{}, fmt.Errorf("reading the etcd certificates: %w", err)
	}
	out.TLS = tls
	return out, nil
}
