// Package snapshot reads an etcd for a backup as a stream, and makes a data directory of one. It keeps a few buffers in memory, whatever
// the size of the database. It knows the two keys of a shard that an inventory lists, and nothing else of its content.
package snapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/atoll-dev/atoll/internal/backup/config"
)

const (
	// A connection that does not answer ends after both together: all streams but a few stand still while others are uploaded, so that only
	// this detects a member that is gone, and keeps the state of the connection in what forwards it.
	keepAliveTime, keepAliveTimeout = 30 * time.Second, 20 * time.Second
	// streamWindow is how much a member sends before its stream is read. A fixed window keeps gRPC from raising it to megabytes.
	streamWindow = 256 << 10
	// diskSector is the size of which a database is a multiple.
	diskSector = 512
)

// Stream is the snapshot of an etcd as of the moment of Open. Until it is read, the member keeps the pages of that moment.
type Stream struct {
	client   *clientv3.Client
	prefix   string
	snapshot io.ReadCloser

	// ClusterID and Version of the etcd, and the Endpoint that sends.
	ClusterID, Version, Endpoint string
	// The snapshot contains all writes up to RevisionFrom, and none after RevisionTo.
	RevisionFrom, RevisionTo int64
}

// Open begins the snapshot of one member, the first that answers. The stream must be closed.
func Open(ctx context.Context, shard config.Shard) (*Stream, error) {
	var problems []error
	for _, endpoint := range shard.Endpoints {
		stream, err := open(ctx, shard, endpoint)
		if err == nil {
			return stream, nil
		}
		problems = append(problems, fmt.Errorf("%s: %w", endpoint, err))
		if ctx.Err() != nil {
			break
		}
	}
	return nil, fmt.Errorf("no member of the etcd of shard %s sends a snapshot: %w", shard.Name, errors.Join(problems...))
}

func open(ctx context.Context, shard config.Shard, endpoint string) (*Stream, error) {
	client, err := Connect(shard.CredentialsDirectory, endpoint)
	if err != nil {
		return nil, err
	}
	out := &Stream{client: client, prefix: shard.Prefix, Endpoint: endpoint}
	if err := out.begin(ctx); err != nil {
		_ = client.Close()
		return nil, err
	}
	return out, nil
}

// Connect returns a client of an etcd. credentials is the directory with its certificates, or "".
func Connect(credentials string, endpoints ...string) (*clientv3.Client, error) {
	cfg := clientv3.Config{
		Endpoints: endpoints, Logger: zap.NewNop(), DialKeepAliveTime: keepAliveTime, DialKeepAliveTimeout: keepAliveTimeout,
		DialOptions: []grpc.DialOption{grpc.WithInitialWindowSize(streamWindow), grpc.WithInitialConnWindowSize(2 * streamWindow)},
	}
	if credentials != "" {
		tls, err := transport.TLSInfo{
			CertFile: filepath.Join(credentials, "tls.crt"), KeyFile: filepath.Join(credentials, "tls.key"), TrustedCAFile: filepath.Join(credentials, "ca.crt"),
		}.ClientConfig()
		if err != nil {
			return nil, fmt.Errorf("reading the certificates: %w", err)
		}
		cfg.TLS = tls
	}
	return clientv3.New(cfg)
}

// begin requests the snapshot between two reads that etcd makes linearizable, on the same connection: a member that lags answers when it
// has caught up, and one that cannot is not used. Status would be a connection of its own, to another member if several have one address.
func (s *Stream) begin(ctx context.Context) error {
	timed, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	before, err := s.header(timed)
	if err != nil {
		return err
	}
	response, err := s.client.SnapshotWithVersion(ctx)
	if err != nil {
		return err
	}
	after, err := s.header(timed)
	if err == nil {
		s.Version, err = s.version(timed, response)
	}
	if err != nil {
		return errors.Join(err, response.Snapshot.Close())
	}
	s.snapshot = response.Snapshot
	s.ClusterID = fmt.Sprintf("%x", before.GetClusterId())
	s.RevisionFrom, s.RevisionTo = before.GetRevision(), after.GetRevision()
	return nil
}

// header reads one key, for the header of the response.
func (s *Stream) header(ctx context.Context) (*etcdserverpb.ResponseHeader, error) {
	response, err := s.client.Get(ctx, logicalClusters(s.prefix), clientv3.WithCountOnly())
	if err != nil {
		return nil, err
	}
	return response.Header, nil
}

// version returns the version of etcd, which snapshots contain from 3.6 on.
func (s *Stream) version(ctx context.Context, snapshot *clientv3.SnapshotResponse) (string, error) {
	if snapshot.Version != "" {
		return snapshot.Version, nil
	}
	status, err := s.client.Status(ctx, s.Endpoint)
	if err != nil {
		return "", err
	}
	return status.Version, nil
}

// WriteTo writes the snapshot with the hash that etcd appends, and checks it. It returns the number of bytes.
func (s *Stream) WriteTo(into io.Writer) (int64, error) {
	check := NewCheck()
	n, err := io.CopyBuffer(io.MultiWriter(into, check), onlyReader{s.snapshot}, make([]byte, 64<<10))
	if err != nil {
		return n, fmt.Errorf("reading the snapshot of %s after %d bytes: %w", s.Endpoint, n, err)
	}
	if err := check.Verify(); err != nil {
		return n, fmt.Errorf("the snapshot of %s: %w", s.Endpoint, err)
	}
	return n, nil
}

// onlyReader hides other methods, so that io.CopyBuffer uses the buffer.
type onlyReader struct{ io.Reader }

// Close ends the stream and the connection.
func (s *Stream) Close() error { return errors.Join(s.snapshot.Close(), s.client.Close()) }

// Check is a writer that verifies the hash that etcd appends to a snapshot.
type Check struct {
	hash hash.Hash
	// tail holds the last bytes, which may be the hash.
	tail []byte
	n    int64
}

// NewCheck returns a Check of a snapshot.
func NewCheck() *Check { return &Check{hash: sha256.New()} }

func (c *Check) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	c.tail = append(c.tail, p...)
	if excess := len(c.tail) - sha256.Size; excess > 0 {
		c.hash.Write(c.tail[:excess])
		c.tail = append(c.tail[:0], c.tail[excess:]...)
	}
	return len(p), nil
}

// Verify returns an error unless what was written is a whole snapshot.
func (c *Check) Verify() error {
	if c.n%diskSector != sha256.Size {
		return fmt.Errorf("it is truncated: %d bytes are no database with an appended hash", c.n)
	}
	if !bytes.Equal(c.hash.Sum(nil), c.tail) {
		return fmt.Errorf("its %d bytes do not have the hash that etcd appended", c.n)
	}
	return nil
}
