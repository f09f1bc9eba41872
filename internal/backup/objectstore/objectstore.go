// Package objectstore reads and writes objects of an S3 bucket for backups, with bounded memory whatever their size. It does not know what
// they contain.
package objectstore

import (
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"net/url"
	"os"
	"path"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"
	_ "golang.org/x/crypto/x509roots/fallback" // the image has no public CAs
	"golang.org/x/time/rate"

	"github.com/atoll-dev/atoll/internal/backup/config"
)

const (
	// PartSize is the size of the parts of an upload, each of which is in memory. S3 allows 10000 parts.
	PartSize = 8 << 20
	// attempts of each request before the error is returned.
	attempts = 4
	// answerTimeout bounds how long a store may take to answer a request that it has received. Some put the parts of a large object together
	// before they answer, and a second request for that fails.
	answerTimeout = 5 * time.Minute
	// defaultRegion is what stores without regions expect in signatures.
	defaultRegion = "us-east-1"
	// burst is the number of bytes that a limited upload may read at once.
	burst = 64 << 10
)

// Store is a prefix in a bucket.
type Store struct {
	client         *minio.Client
	bucket, prefix string
	limiter        *rate.Limiter // nil if there is no limit
	// isGoogle is set for Google Cloud Storage, which gets an object as one request instead of parts, and so neither its digest before its
	// content nor a size to return. Others get the digest of each request: S3 demands it in a bucket with object lock.
	isGoogle    bool
	lock        *lock // nil if the bucket decides
	description string
}

// lock is put on objects that are written.
type lock struct {
	mode      minio.RetentionMode
	retainFor time.Duration
}

// Credentials are the keys of an account.
type Credentials struct{ AccessKeyID, SecretAccessKey, SessionToken string }

// Open returns the store of a configuration with credentials in files. It does not connect.
func Open(cfg config.Store) (*Store, error) {
	var ca []byte
	if cfg.EndpointCAFile != "" {
		var err error
		if ca, err = os.ReadFile(cfg.EndpointCAFile); err != nil {
			return nil, fmt.Errorf("reading the CA of the store: %w", err)
		}
	}
	return open(cfg, ca, credentials.New(&files{cfg}))
}

// OpenWith returns the store of a configuration with credentials and a bundle of CAs in memory; without a bundle, public CAs are trusted.
func OpenWith(cfg config.Store, ca []byte, keys Credentials) (*Store, error) {
	return open(cfg, ca, credentials.NewStaticV4(keys.AccessKeyID, keys.SecretAccessKey, keys.SessionToken))
}

func open(cfg config.Store, ca []byte, keys *credentials.Credentials) (*Store, error) {
	endpoint, err := url.Parse(cfg.EndpointURL)
	if err != nil || endpoint.Host == "" || (endpoint.Scheme != "https" && endpoint.Scheme != "http") {
		return nil, &Error{Reason: ReasonInvalidSpec, Message: fmt.Sprintf("endpointURL %q is no URL of a server: want https://host[:port]", cfg.EndpointURL)}
	}
	transport, err := minio.DefaultTransport(endpoint.Scheme == "https")
	if err != nil {
		return nil, err
	}
	transport.ResponseHeaderTimeout = answerTimeout
	if len(ca) > 0 {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(ca) {
			return nil, &Error{Reason: ReasonInvalidSpec, Message: "endpointCA contains no certificate: want one or more in PEM"}
		}
		transport.TLSClientConfig.RootCAs = pool
	}
	lookup := minio.BucketLookupPath
	if cfg.AddressingStyle == config.AddressingVirtualHosted {
		lookup = minio.BucketLookupDNS
	}
	region := cfg.Region
	if region == "" {
		region = defaultRegion
	}
	client, err := minio.New(endpoint.Host, &minio.Options{
		Creds: keys, Secure: endpoint.Scheme == "https", Transport: transport, Region: region, BucketLookup: lookup, MaxRetries: attempts,
	})
	if err != nil {
		return nil, &Error{Reason: ReasonInvalidSpec, Message: fmt.Sprintf("endpointURL %q: %v", cfg.EndpointURL, err)}
	}
	out := &Store{client: client, bucket: cfg.Bucket, prefix: strings.Trim(cfg.Prefix, "/"), description: endpoint.Host, isGoogle: s3utils.IsGoogleEndpoint(*endpoint)}
	if cfg.UploadBytesPerSecond > 0 {
		out.limiter = rate.NewLimiter(rate.Limit(cfg.UploadBytesPerSecond), burst)
	}
	if cfg.ObjectLock != nil {
		if out.lock, err = newLock(*cfg.ObjectLock); err != nil {
			return nil, err
		}
		if out.isGoogle {
			return nil, &Error{Reason: ReasonInvalidSpec, Message: "Google Cloud Storage has no object lock for S3 clients: remove objectLock, and set a retention policy on the bucket"}
		}
	}
	return out, nil
}

func newLock(cfg config.ObjectLock) (*lock, error) {
	mode := minio.RetentionMode(strings.ToUpper(cfg.Mode))
	if !mode.IsValid() || cfg.RetainSeconds <= 0 {
		return nil, &Error{Reason: ReasonInvalidSpec, Message: fmt.Sprintf("objectLock has mode %q for %d seconds: want Governance or Compliance, and a time", cfg.Mode, cfg.RetainSeconds)}
	}
	return &lock{mode, time.Duration(cfg.RetainSeconds) * time.Second}, nil
}

// writeOptions are those of all objects that are written.
func (s *Store) writeOptions(contentType string) minio.PutObjectOptions {
	out := minio.PutObjectOptions{ContentType: contentType, SendContentMd5: !s.isGoogle}
	if s.lock != nil {
		out.Mode, out.RetainUntilDate = s.lock.mode, time.Now().Add(s.lock.retainFor).UTC()
	}
	return out
}

// Close ends idle connections.
func (s *Store) Close() { s.client.CredContext().Client.CloseIdleConnections() }

// Check lists at most one object, which needs what all other commands need first: the server, its certificate, the bucket, and rights.
func (s *Store) Check(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for object := range s.client.ListObjectsIter(ctx, s.bucket, minio.ListObjectsOptions{Prefix: s.folder(), MaxKeys: 1}) {
		return s.explain("listing objects", object.Err)
	}
	return nil
}

// List returns the names of the folders below the prefix, sorted.
func (s *Store) List(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	prefix := s.folder()
	var out []string
	for object := range s.client.ListObjectsIter(ctx, s.bucket, minio.ListObjectsOptions{Prefix: prefix}) {
		if object.Err != nil {
			return nil, s.explain("listing objects", object.Err)
		}
		if name, folder := strings.CutSuffix(strings.TrimPrefix(object.Key, prefix), "/"); folder {
			out = append(out, name)
		}
	}
	return out, nil
}

// Put uploads what a reader returns, in parts, one of which is in memory, and returns the size of the object. An upload that fails leaves no
// object; the parts of one that could not be ended are for the bucket's own rules.
func (s *Store) Put(ctx context.Context, key string, content io.Reader) (int64, error) {
	if s.limiter != nil {
		content = &limited{ctx: ctx, inner: content, limiter: s.limiter}
	}
	options := s.writeOptions("application/octet-stream")
	options.PartSize = PartSize
	info, err := s.client.PutObject(ctx, s.bucket, s.key(key), content, -1, options)
	if err != nil {
		return 0, s.explainWrite(key, err)
	}
	if s.isGoogle {
		object, err := s.client.StatObject(ctx, s.bucket, s.key(key), minio.StatObjectOptions{})
		return object.Size, s.explain("reading the size of "+s.key(key), err)
	}
	return info.Size, nil
}

// PutBytes uploads a small object at once, so that it is either there or not.
func (s *Store) PutBytes(ctx context.Context, key string, content []byte) error {
	options := s.writeOptions("application/json")
	options.SendContentMd5 = true
	_, err := s.client.PutObject(ctx, s.bucket, s.key(key), strings.NewReader(string(content)), int64(len(content)), options)
	return s.explainWrite(key, err)
}

// Get returns an object and its size. The reader must be closed.
func (s *Store) Get(ctx context.Context, key string) (io.ReadCloser, int64, error) {
	core := minio.Core{Client: s.client}
	object, info, _, err := core.GetObject(ctx, s.bucket, s.key(key), minio.GetObjectOptions{})
	if err != nil {
		return nil, 0, s.explainRead(key, err)
	}
	return &body{object, s, key}, info.Size, nil
}

// body is the content of an object. A connection that breaks is an error of the store, and says nothing of the object.
type body struct {
	io.ReadCloser
	store *Store
	key   string
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == nil || err == io.EOF { //nolint:errorlint // readers compare it
		return n, err
	}
	return n, b.store.explainRead(b.key, err)
}

// Location names an object for people.
func (s *Store) Location(key string) string { return "s3://" + path.Join(s.bucket, s.key(key)) }

// folder is what all keys begin with.
func (s *Store) folder() string {
	if s.prefix == "" {
		return ""
	}
	return s.prefix + "/"
}

func (s *Store) key(key string) string { return path.Join(s.prefix, key) }

// limited is a reader of at most as many bytes per second as a limiter admits.
type limited struct {
	ctx     context.Context
	inner   io.Reader
	limiter *rate.Limiter
}

func (l *limited) Read(p []byte) (int, error) {
	n, err := l.inner.Read(p[:min(len(p), burst)])
	if n > 0 {
		if waitErr := l.limiter.WaitN(l.ctx, n); waitErr != nil {
			return n, waitErr
		}
	}
	return n, err
}

// files are credentials that are read again for each request.
type files struct{ cfg config.Store }

func (f *files) RetrieveWithCredContext(*credentials.CredContext) (credentials.Value, error) {
	out := credentials.Value{SignerType: credentials.SignatureV4}
	for file, target := range map[string]*string{f.cfg.AccessKeyIDFile: &out.AccessKeyID, f.cfg.SecretAccessKeyFile: &out.SecretAccessKey, f.cfg.SessionTokenFile: &out.SessionToken} {
		if file == "" {
			continue
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return credentials.Value{}, fmt.Errorf("reading the credentials of the store: %w", err)
		}
		*target = strings.TrimSpace(string(content))
	}
	return out, nil
}

func (f *files) Retrieve() (credentials.Value, error) { return f.RetrieveWithCredContext(nil) }

func (f *files) IsExpired() bool { return true }
