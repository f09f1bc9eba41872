// Package store keeps the objects of a cache in etcd, as the JSON that was published. It knows no schema and no user, and
// has no watch cache: what is in etcd is what is served, so that replicas of a server agree, and a watch goes on where it
// was after a restart of the server.
//
// HTTP is not here (package api), nor is what becomes of objects that nobody needs (packages garbage and hierarchy).
package store

import (
	"context"
	"errors"
	"fmt"
	"path"
	"sync"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"

	cacheclient "github.com/atoll-dev/atoll/cacheserver/client"
)

const (
	dialTimeout      = 20 * time.Second
	keepAliveTime    = 30 * time.Second
	keepAliveTimeout = 10 * time.Second

	progressInterval = 5 * time.Second
	checkTimeout     = 5 * time.Second

	// incarnationKey names the store itself. No object has such a key: those have more segments.
	incarnationKey = "incarnation"
)

// Config says where the objects are kept.
type Config struct {
	Transport storagebackend.TransportConfig
	// Prefix begins all keys, such as "/cache".
	Prefix string
	// Transformer returns what encrypts a resource at rest; nil, or a result of nil, leaves it plain.
	Transformer func(schema.GroupResource) value.Transformer
	// CompactionInterval is the time that etcd keeps old revisions for, at least. 0 leaves that to somebody else.
	CompactionInterval time.Duration
	// Quota are how much each shard may have. Refused is told of what is refused because of them; it may be nil.
	Quota           Quota
	OnQuotaExceeded func(shard string)
}

// Backend is the connection to etcd that all stores of a process share.
type Backend struct {
	config    Config
	client    *kubernetes.Client
	compactor etcd3.Compactor
	stop      []func()
	// incarnation names what the prefix holds; it is another one after everything was lost.
	incarnation string
	usage       *usageTracker
}

// Open connects to etcd and makes sure that the store has a name. Close it after everything that uses it.
func Open(ctx context.Context, config Config) (*Backend, error) {
	client, err := connect(config.Transport)
	if err != nil {
		return nil, fmt.Errorf("connecting to etcd at %v: %w", config.Transport.ServerList, err)
	}
	b := &Backend{config: config, client: client, usage: newUsageTracker()}
	if b.incarnation, err = b.ensureIncarnation(ctx); err != nil {
		b.Close()
		return nil, fmt.Errorf("reading which store %v is: %w", config.Transport.ServerList, err)
	}
	if config.CompactionInterval > 0 {
		compactor := etcd3.StartCompactorPerEndpoint(client.Client, config.CompactionInterval)
		b.compactor, b.stop = compactor, append(b.stop, compactor.Stop)
	}
	return b, nil
}

func connect(config storagebackend.TransportConfig) (*kubernetes.Client, error) {
	given := clientv3.Config{
		Endpoints:            config.ServerList,
		DialTimeout:          dialTimeout,
		DialKeepAliveTime:    keepAliveTime,
		DialKeepAliveTimeout: keepAliveTimeout,
		Logger:               zap.NewNop(), // every failure comes back as an error
	}
	if config.CertFile != "" || config.KeyFile != "" || config.TrustedCAFile != "" {
		info := transport.TLSInfo{CertFile: config.CertFile, KeyFile: config.KeyFile, TrustedCAFile: config.TrustedCAFile}
		tls, err := info.ClientConfig()
		if err != nil {
			return nil, err
		}
		given.TLS = tls
	}
	client, err := kubernetes.New(given)
	if err != nil {
		return nil, err
	}
	client.KV = etcd3.NewETCDLatencyTracker(client.KV)
	return client, nil
}

// ensureIncarnation returns the name of the store and gives it one if it has none. Replicas that start at once agree on one.
func (b *Backend) ensureIncarnation(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	key := path.Join("/", b.config.Prefix, incarnationKey)
	response, err := b.client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
		Then(clientv3.OpPut(key, string(uuid.NewUUID())), clientv3.OpGet(key)).
		Else(clientv3.OpGet(key)).Commit()
	if err != nil {
		return "", err
	}
	found := response.Responses[len(response.Responses)-1].GetResponseRange()
	if len(found.Kvs) != 1 {
		return "", errors.New("the name was deleted while it was read")
	}
	return string(found.Kvs[0].Value), nil
}

// Incarnation names what is stored: resource versions of another incarnation mean nothing here.
func (b *Backend) Incarnation() string { return b.incarnation }

// Client returns the connection, for what is stored besides objects.
func (b *Backend) Client() *clientv3.Client { return b.client.Client }

// Prefix returns what all keys begin with.
func (b *Backend) Prefix() string { return path.Join("/", b.config.Prefix) }

// Close ends the connection.
func (b *Backend) Close() {
	for _, stop := range b.stop {
		stop()
	}
	_ = b.client.Close()
}

// Run follows how much shards have, and has etcd say to all watches now and then how far they are, until the context ends.
// A watch of a resource that does not change would otherwise end up with a position that etcd has forgotten.
func (b *Backend) Run(ctx context.Context) {
	var following sync.WaitGroup
	following.Go(func() { b.watchUsage(ctx) })
	defer following.Wait()
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		// The stock storage opens its watches with the same requirement, hence on the same stream. A failure means that
		// there is no stream, which then has no watches either.
		_ = b.client.RequestProgress(clientv3.WithRequireLeader(ctx))
	}, progressInterval)
}

// Check returns an error if etcd does not answer.
func (b *Backend) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if _, err := b.client.Client.Get(ctx, path.Join("/", b.config.Prefix, incarnationKey), clientv3.WithKeysOnly()); err != nil {
		return fmt.Errorf("etcd does not answer: %w", err)
	}
	return nil
}

// newStorage returns the stock storage of one resource. Its metrics have the name that counts gives it.
func (b *Backend) newStorage(gr schema.GroupResource, kind schema.GroupVersionKind, prefix string) (storage.Interface, error) {
	transformer := identity.NewEncryptCheckTransformer()
	if b.config.Transformer != nil {
		if given := b.config.Transformer(gr); given != nil {
			transformer = given
		}
	}
	versioner := storage.APIObjectVersioner{}
	codec := unstructured.UnstructuredJSONScheme
	return etcd3.New(b.client, b.compactor, codec,
		func() runtime.Object { return newObject(kind) }, // of bookmarks, too
		func() runtime.Object { return &unstructured.UnstructuredList{} },
		b.config.Prefix, prefix, cacheclient.MetricsGroupResource(gr), transformer, etcd3.NewDefaultLeaseManagerConfig(), etcd3.NewDefaultDecoder(codec, versioner), versioner)
}

func newObject(kind schema.GroupVersionKind) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(kind)
	return obj
}
