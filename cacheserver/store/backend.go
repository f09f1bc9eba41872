// Package store keeps the objects of a cache in etcd, as the JSON that was published. It has neither schemas nor users,
// and no watch cache: requests are served from etcd, so that replicas of a server agree, and a watch resumes after a
// restart of the server.
//
// HTTP is in package api, the deletion of obsolete objects in packages garbage and hierarchy.
package store

import (
	"context"
	"errors"
	"fmt"
	"path"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
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
	"github.com/atoll-dev/atoll/internal/etcddial"
)

const (
	startTimeout     = 20 * time.Second
	progressInterval = 5 * time.Second
	checkTimeout     = 5 * time.Second

	// incarnationKey is the key of the store's identity. Keys of objects have more segments.
	incarnationKey = "incarnation"
)

// Config configures a Backend.
type Config struct {
	Transport storagebackend.TransportConfig
	// Prefix is the prefix of all keys, such as "/cache".
	Prefix string
	// Transformer returns the transformer that encrypts a resource at rest; nil, or a result of nil, means none.
	Transformer func(schema.GroupResource) value.Transformer
	// Claim claims the keys below the prefix before anything is written there; nil if the caller has done that.
	Claim func(ctx context.Context, etcd *clientv3.Client) error
	// CompactionInterval is how long etcd keeps old revisions at least. 0 disables compaction by this process.
	CompactionInterval time.Duration
	// Quota are the limits of each shard. OnQuotaExceeded is called for rejected writes; it may be nil.
	Quota           Quota
	OnQuotaExceeded func(shard string)
}

// Backend is the connection to etcd that all stores of a process share.
type Backend struct {
	config    Config
	client    *kubernetes.Client
	compactor etcd3.Compactor
	stop      []func()
	// incarnation identifies the content of the prefix; a server that finds the prefix empty stores another one.
	incarnation string
	usage       *usageTracker
}

// Open connects to etcd and ensures that the store has an identity. Callers must Close it after all stores.
func Open(ctx context.Context, config Config) (*Backend, error) {
	client, err := connect(config.Transport)
	if err != nil {
		return nil, fmt.Errorf("connecting to etcd at %v: %w", config.Transport.ServerList, err)
	}
	b := &Backend{config: config, client: client, usage: newUsageTracker()}
	if config.Claim != nil {
		if err := config.Claim(ctx, client.Client); err != nil {
			b.Close()
			return nil, err
		}
	}
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
	clientConfig, err := etcddial.NewConfig(config)
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.New(clientConfig)
	if err != nil {
		return nil, err
	}
	client.KV = etcd3.NewETCDLatencyTracker(client.KV)
	return client, nil
}

// ensureIncarnation returns the identity of the store, and creates it if it is missing. Concurrent replicas agree on
// one.
func (b *Backend) ensureIncarnation(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
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
		return "", errors.New("the incarnation was deleted concurrently")
	}
	return string(found.Kvs[0].Value), nil
}

// Incarnation identifies the store: resource versions of another incarnation are invalid here.
func (b *Backend) Incarnation() string { return b.incarnation }

// Client returns the etcd client, for data other than objects.
func (b *Backend) Client() *clientv3.Client { return b.client.Client }

// Prefix returns the prefix of all keys.
func (b *Backend) Prefix() string { return path.Join("/", b.config.Prefix) }

// Close closes the connection.
func (b *Backend) Close() {
	for _, stop := range b.stop {
		stop()
	}
	_ = b.client.Close()
}

// Run tracks the usage of shards, and requests progress notifications for all watches, until the context ends. A watch
// of a resource without changes would otherwise keep a revision that etcd has compacted.
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

// Check returns an error if etcd is not available.
func (b *Backend) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if _, err := b.client.Client.Get(ctx, path.Join("/", b.config.Prefix, incarnationKey), clientv3.WithKeysOnly()); err != nil {
		return fmt.Errorf("etcd does not answer: %w", err)
	}
	return nil
}

// newStorage returns the stock storage of one resource, of objects of a kind that may be stored in another version. Its
// metrics are labelled by client.MetricsGroupResource.
func (b *Backend) newStorage(gr schema.GroupResource, kind schema.GroupVersionKind, stored schema.GroupVersion, prefix string) (storage.Interface, error) {
	transformer := identity.NewEncryptCheckTransformer()
	if b.config.Transformer != nil {
		if given := b.config.Transformer(gr); given != nil {
			transformer = given
		}
	}
	versioner := storage.APIObjectVersioner{}
	codec := unstructured.UnstructuredJSONScheme
	if served := kind.GroupVersion(); served != stored {
		codec = versionCodec{codec, stored, served}
	}
	created, err := etcd3.New(b.client, b.compactor, codec,
		func() runtime.Object { return newObject(kind) }, // also for bookmarks
		func() runtime.Object { return &unstructured.UnstructuredList{} },
		b.config.Prefix, prefix, cacheclient.MetricsGroupResource(gr), transformer, etcd3.NewDefaultLeaseManagerConfig(), etcd3.NewDefaultDecoder(codec, versioner), versioner)
	if err != nil {
		return nil, err
	}
	return created, nil
}

func newObject(kind schema.GroupVersionKind) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(kind)
	return obj
}
