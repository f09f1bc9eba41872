// Package embeddedetcd runs an etcd in the process of a shard or cache server that is configured without an external
// one, and defines its flags. It must not depend on the content of the etcd.
package embeddedetcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// startTimeout bounds the wait for the store to serve. Recovering a large data directory takes seconds.
const startTimeout = 60 * time.Second

// slowRequestThreshold is the duration after which etcd logs a request as slow.
const slowRequestThreshold = time.Second

// Config configures an embedded etcd. For ports of 0, free ports are used.
type Config struct {
	// Directory contains the data and, in "secrets", the certificates. It is created if needed.
	Directory            string
	ClientPort, PeerPort int
	ListenMetricsURLs    []string
	// WALSizeBytes and QuotaBackendBytes of 0 keep etcd's defaults.
	WALSizeBytes      int64
	QuotaBackendBytes int64
	ForceNewCluster   bool
	// ECDSACurve of the generated certificates: P-224, P-256, P-384 (the default) or P-521.
	ECDSACurve string
	// UnsafeNoFsync disables fsync, which risks data loss at a power failure. For tests only.
	UnsafeNoFsync bool
}

// Server is a running embedded etcd.
type Server struct {
	etcd     *embed.Etcd
	logLevel zap.AtomicLevel
	lock     *fileutil.LockedFile

	// Endpoint is the client URL.
	Endpoint string
	// CAFile, CertFile and KeyFile are the credentials of clients, as PEM files.
	CAFile, CertFile, KeyFile string
}

// freePortAttempts bounds the attempts to find free ports: processes that start concurrently may choose the same ones.
const freePortAttempts = 5

// Start runs etcd in this process and returns when it serves. Stop it with Close.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	if err := os.MkdirAll(cfg.Directory, 0o700); err != nil {
		return nil, fmt.Errorf("creating the embedded etcd's directory: %w", err)
	}
	lock, err := lockDirectory(cfg.Directory)
	if err != nil {
		return nil, err
	}
	server, err := start(ctx, cfg)
	for range freePortAttempts {
		if !errors.Is(err, syscall.EADDRINUSE) || cfg.ClientPort != 0 && cfg.PeerPort != 0 {
			break
		}
		server, err = start(ctx, cfg) // another process has taken the free port
	}
	if err != nil {
		lock.Close()
		return nil, err
	}
	server.lock = lock
	return server, nil
}

// lockDirectory excludes other processes before anything is written. The lock is released when the process ends.
func lockDirectory(directory string) (*fileutil.LockedFile, error) {
	lock, err := fileutil.TryLockFile(filepath.Join(directory, "lock"), os.O_WRONLY|os.O_CREATE, 0o600)
	if errors.Is(err, fileutil.ErrLocked) {
		return nil, fmt.Errorf("embedded etcd: another process still uses %s; wait until it has ended, or choose another --root-directory", directory)
	}
	if err != nil {
		return nil, fmt.Errorf("locking the embedded etcd's directory: %w", err)
	}
	return lock, nil
}

func start(ctx context.Context, cfg Config) (*Server, error) {
	secrets, err := writeSecrets(filepath.Join(cfg.Directory, "secrets"), cfg.ECDSACurve)
	if err != nil {
		return nil, fmt.Errorf("creating the embedded etcd's certificates: %w", err)
	}
	clientPort, err := freePortIfZero(cfg.ClientPort)
	if err != nil {
		return nil, err
	}
	peerPort, err := freePortIfZero(cfg.PeerPort)
	if err != nil {
		return nil, err
	}
	clientURL := url.URL{Scheme: "https", Host: net.JoinHostPort("localhost", strconv.Itoa(clientPort))}
	peerURL := url.URL{Scheme: "https", Host: net.JoinHostPort("localhost", strconv.Itoa(peerPort))}

	ec := embed.NewConfig()
	ec.Name = "embedded"
	ec.Dir = cfg.Directory
	ec.ListenClientUrls, ec.AdvertiseClientUrls = []url.URL{clientURL}, []url.URL{clientURL}
	ec.ListenPeerUrls, ec.AdvertisePeerUrls = []url.URL{peerURL}, []url.URL{peerURL}
	ec.InitialCluster = ec.Name + "=" + peerURL.String()
	ec.ClientTLSInfo = transport.TLSInfo{
		CertFile: secrets.peerCert, KeyFile: secrets.peerKey, TrustedCAFile: secrets.caCert,
		ClientCertAuth: true, MinVersion: tls.VersionTLS12,
	}
	ec.PeerTLSInfo = ec.ClientTLSInfo
	ec.QuotaBackendBytes = cfg.QuotaBackendBytes
	ec.ForceNewCluster = cfg.ForceNewCluster
	ec.UnsafeNoFsync = cfg.UnsafeNoFsync
	ec.StrictReconfigCheck = false
	for _, raw := range cfg.ListenMetricsURLs {
		u, err := url.Parse(raw)
		if err != nil {
			return nil, fmt.Errorf("--embedded-etcd-listen-metrics-urls: %w", err)
		}
		ec.ListenMetricsUrls = append(ec.ListenMetricsUrls, *u)
	}
	ec.WarningUnaryRequestDuration, ec.WarningApplyDuration = slowRequestThreshold, slowRequestThreshold
	ec.AuthToken = "" // clients have certificates
	logLevel := zap.NewAtomicLevelAt(zap.WarnLevel)
	logger, err := newLogger(logLevel)
	if err != nil {
		return nil, fmt.Errorf("creating the embedded etcd's log: %w", err)
	}
	ec.ZapLoggerBuilder = embed.NewZapLoggerBuilder(logger)
	if err := SetWALSize(cfg.WALSizeBytes); err != nil {
		return nil, err
	}
	etcd, err := embed.StartEtcd(ec)
	if err != nil {
		return nil, wrapStartError(err, cfg)
	}
	select {
	case <-etcd.Server.ReadyNotify():
	case err := <-etcd.Err():
		etcd.Close()
		return nil, wrapStartError(err, cfg)
	case <-ctx.Done():
		etcd.Close()
		return nil, ctx.Err()
	case <-time.After(startTimeout):
		etcd.Server.Stop()
		etcd.Close()
		return nil, fmt.Errorf("embedded etcd: server took too long to start (%s)", startTimeout)
	}
	return &Server{etcd: etcd, logLevel: logLevel, Endpoint: clientURL.String(), CAFile: secrets.caCert, CertFile: secrets.clientCert, KeyFile: secrets.clientKey}, nil
}

// Err reports the failure of a running server.
func (s *Server) Err() <-chan error { return s.etcd.Err() }

// Close stops the server and returns when its files are closed. It must be called after all users of the server have
// stopped.
func (s *Server) Close() {
	s.logLevel.SetLevel(zap.FatalLevel) // closing listeners is logged as an error, but is not one
	s.etcd.Close()
	s.lock.Close()
}

func newLogger(level zap.AtomicLevel) (*zap.Logger, error) {
	config := zap.NewProductionConfig()
	config.Level = level
	config.DisableStacktrace = true
	return config.Build(zap.WrapCore(func(core zapcore.Core) zapcore.Core { return withoutPortWarning{core} }))
}

// withoutPortWarning drops a warning that every start with one port logs. The members of this etcd have few clients, all of them use
// gRPC.
type withoutPortWarning struct{ zapcore.Core }

const portWarning = "Running http and grpc server on single port. This is not recommended for production."

// Check implements zapcore.Core.
func (w withoutPortWarning) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if entry.Message == portWarning {
		return checked
	}
	return w.Core.Check(entry, checked)
}

// With implements zapcore.Core.
func (w withoutPortWarning) With(fields []zapcore.Field) zapcore.Core {
	return withoutPortWarning{w.Core.With(fields)}
}

func wrapStartError(err error, cfg Config) error {
	if strings.Contains(err.Error(), "address already in use") {
		return fmt.Errorf("embedded etcd: %w: another process uses the port; choose others with --embedded-etcd-client-port (now %d) and --embedded-etcd-peer-port (now %d)", err, cfg.ClientPort, cfg.PeerPort)
	}
	return fmt.Errorf("embedded etcd in %s: %w", cfg.Directory, err)
}

func freePortIfZero(port int) (int, error) {
	if port != 0 {
		return port, nil
	}
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		return 0, fmt.Errorf("looking for a free port: %w", err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}
