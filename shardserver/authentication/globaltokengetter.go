package authentication

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/pkg/serviceaccount"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

const (
	// successTTL and failureTTL are how long responses of other shards are cached: objects, and errors including NotFound.
	successTTL, failureTTL = time.Minute, 10 * time.Second
	// maxCachedLookups bounds the number of cached responses. The least recently used ones are evicted.
	maxCachedLookups = 8192
	// lookupTimeout bounds one request.
	lookupTimeout = 10 * time.Second
)

// explainNotFound adds to a NotFound error, if the logical cluster is on another shard, that access to other shards is
// not configured.
func explainNotFound(err error, local bool, cluster logicalcluster.Name) error {
	if local || !apierrors.IsNotFound(err) {
		return err
	}
	return fmt.Errorf("logical cluster %q is not on this shard, and access to other shards is not configured (--external-logical-cluster-admin-kubeconfig): %w", cluster, err)
}

// globalTokenGetter reads the objects that a token is bound to, in the logical cluster of the context: from this shard,
// or through the front proxy if the logical cluster is on another shard. It is called for tokens with a valid signature
// only.
type globalTokenGetter struct {
	tokenGetter
	registry *storage.Registry
	// proxy is a client configuration for all shards. If it is nil, only objects of this shard are found.
	proxy    *rest.Config
	inFlight singleflight.Group
	cache    *utilcache.LRUExpireCache
}

var _ serviceaccount.ServiceAccountTokenGetter = &globalTokenGetter{}

func newGlobalTokenGetter(registry *storage.Registry, proxy *rest.Config) *globalTokenGetter {
	return &globalTokenGetter{tokenGetter: newTokenGetter(registry), registry: registry, proxy: proxy, cache: utilcache.NewLRUExpireCache(maxCachedLookups)}
}

// lookupKey is the key of a cached response.
type lookupKey struct {
	cluster         logicalcluster.Name
	kind            string
	namespace, name string
}

// lookupResult is a cached response. It is shared and must not be modified.
type lookupResult struct {
	object any
	err    error
}

func (g *globalTokenGetter) GetServiceAccount(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	cluster, local, err := g.locateCluster(ctx)
	if err != nil {
		return nil, err
	}
	if local || g.proxy == nil {
		found, err := g.tokenGetter.GetServiceAccount(ctx, namespace, name)
		return found, explainNotFound(err, local, cluster)
	}
	return lookup(g, lookupKey{cluster, "serviceaccount", namespace, name}, func(ctx context.Context, client kubernetes.Interface) (*corev1.ServiceAccount, error) {
		return client.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
	})
}

// GetSecret returns a secret of another shard. It sets the last-used label to today, because the secret's own shard
// records the last use.
func (g *globalTokenGetter) GetSecret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	cluster, local, err := g.locateCluster(ctx)
	if err != nil {
		return nil, err
	}
	if local || g.proxy == nil {
		found, err := g.tokenGetter.GetSecret(ctx, namespace, name)
		return found, explainNotFound(err, local, cluster)
	}
	found, err := lookup(g, lookupKey{cluster, "secret", namespace, name}, func(ctx context.Context, client kubernetes.Interface) (*corev1.Secret, error) {
		return client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	})
	if err != nil {
		return nil, err
	}
	used := found.DeepCopy()
	if used.Labels == nil {
		used.Labels = map[string]string{}
	}
	used.Labels[serviceaccount.LastUsedLabelKey] = time.Now().UTC().Format(time.DateOnly)
	return used, nil
}

// locateCluster returns the logical cluster of the context, and whether it is on this shard.
func (g *globalTokenGetter) locateCluster(ctx context.Context) (logicalcluster.Name, bool, error) {
	cluster, ok := logicalcluster.From(ctx)
	if !ok || cluster.IsWildcard() {
		return cluster, false, errors.New("looking up the objects of a token: no single logical cluster in the context")
	}
	local, err := g.registry.IsLocal(ctx, cluster)
	return cluster, local, err
}

// lookup returns the cached response, or sends a request to the shard of the logical cluster. Concurrent calls for the
// same object share one request.
func lookup[T any](g *globalTokenGetter, key lookupKey, read func(context.Context, kubernetes.Interface) (T, error)) (T, error) {
	var zero T
	cached, found := g.cache.Get(key)
	if !found {
		cached, _, _ = g.inFlight.Do(fmt.Sprint(key), func() (any, error) {
			result := g.fetch(key, func(ctx context.Context, client kubernetes.Interface) (any, error) { return read(ctx, client) })
			ttl := successTTL
			if result.err != nil {
				ttl = failureTTL
			}
			g.cache.Add(key, result, ttl)
			return result, nil
		})
	}
	result, _ := cached.(lookupResult)
	if result.err != nil {
		return zero, result.err
	}
	object, ok := result.object.(T)
	if !ok {
		return zero, fmt.Errorf("reading a %s from another shard: got %T", key.kind, result.object)
	}
	return object, nil
}

func (g *globalTokenGetter) fetch(key lookupKey, read func(context.Context, kubernetes.Interface) (any, error)) lookupResult {
	ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout) // not that of a caller: other callers may share the request
	defer cancel()
	config := rest.CopyConfig(g.proxy)
	config.Host = strings.TrimSuffix(config.Host, "/") + key.cluster.Path().URLPath()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return lookupResult{err: fmt.Errorf("creating a client of the shard of %q: %w", key.cluster, err)}
	}
	object, err := read(ctx, client)
	if err != nil && !apierrors.IsNotFound(err) {
		err = fmt.Errorf("reading from the shard of %q %s %s/%s: %w", key.cluster, key.kind, key.namespace, key.name, err)
	}
	return lookupResult{object, err}
}
