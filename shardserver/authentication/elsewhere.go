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
	// foundTTL and missedTTL are how long responses of other shards are cached: objects, and errors including NotFound.
	foundTTL, missedTTL = time.Minute, 10 * time.Second
	// maxAnswers bounds the number of cached responses. The least recently used ones are evicted.
	maxAnswers = 8192
	// askTimeout bounds one request.
	askTimeout = 10 * time.Second
)

// explained adds to a NotFound error, if the logical cluster is on another shard, that access to other shards is not
// configured.
func explained(err error, here bool, cluster logicalcluster.Name) error {
	if here || !apierrors.IsNotFound(err) {
		return err
	}
	return fmt.Errorf("logical cluster %q is not on this shard, and how to ask others is not configured (--external-logical-cluster-admin-kubeconfig): %w", cluster, err)
}

// everywhereGetter reads the objects that a token is bound to, in the logical cluster of the context: from this shard,
// or through the front proxy if the logical cluster is on another shard. It is called for tokens with a valid signature
// only.
type everywhereGetter struct {
	tokenGetter
	registry *storage.Registry
	// proxy is a client configuration for all shards. If it is nil, only objects of this shard are found.
	proxy   *rest.Config
	asking  singleflight.Group
	answers *utilcache.LRUExpireCache
}

var _ serviceaccount.ServiceAccountTokenGetter = &everywhereGetter{}

func newEverywhereGetter(registry *storage.Registry, proxy *rest.Config) *everywhereGetter {
	return &everywhereGetter{tokenGetter: newTokenGetter(registry), registry: registry, proxy: proxy, answers: utilcache.NewLRUExpireCache(maxAnswers)}
}

// question is the key of a cached response.
type question struct {
	cluster         logicalcluster.Name
	kind            string
	namespace, name string
}

// answer is a cached response. It is shared and must not be modified.
type answer struct {
	object any
	err    error
}

func (g *everywhereGetter) GetServiceAccount(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	cluster, here, err := g.whose(ctx)
	if err != nil {
		return nil, err
	}
	if here || g.proxy == nil {
		found, err := g.tokenGetter.GetServiceAccount(ctx, namespace, name)
		return found, explained(err, here, cluster)
	}
	return ask(g, question{cluster, "serviceaccount", namespace, name}, func(ctx context.Context, there kubernetes.Interface) (*corev1.ServiceAccount, error) {
		return there.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
	})
}

// GetSecret returns a secret of another shard with the label of a use today, because the last use is recorded by its
// own shard.
func (g *everywhereGetter) GetSecret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	cluster, here, err := g.whose(ctx)
	if err != nil {
		return nil, err
	}
	if here || g.proxy == nil {
		found, err := g.tokenGetter.GetSecret(ctx, namespace, name)
		return found, explained(err, here, cluster)
	}
	found, err := ask(g, question{cluster, "secret", namespace, name}, func(ctx context.Context, there kubernetes.Interface) (*corev1.Secret, error) {
		return there.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
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

// whose returns the logical cluster of the context, and whether it is on this shard.
func (g *everywhereGetter) whose(ctx context.Context) (logicalcluster.Name, bool, error) {
	cluster, ok := logicalcluster.From(ctx)
	if !ok || cluster.IsWildcard() {
		return cluster, false, errors.New("looking for what a token is bound to: no single logical cluster in the context")
	}
	here, err := g.registry.Here(ctx, cluster)
	return cluster, here, err
}

// ask returns the cached response, or sends a request to the shard of the logical cluster. Concurrent calls for the
// same object share one request.
func ask[T any](g *everywhereGetter, of question, read func(context.Context, kubernetes.Interface) (T, error)) (T, error) {
	var none T
	said, known := g.answers.Get(of)
	if !known {
		said, _, _ = g.asking.Do(fmt.Sprint(of), func() (any, error) {
			got := g.asked(of, func(ctx context.Context, there kubernetes.Interface) (any, error) { return read(ctx, there) })
			ttl := foundTTL
			if got.err != nil {
				ttl = missedTTL
			}
			g.answers.Add(of, got, ttl)
			return got, nil
		})
	}
	got, _ := said.(answer)
	if got.err != nil {
		return none, got.err
	}
	object, ok := got.object.(T)
	if !ok {
		return none, fmt.Errorf("asking another shard for a %s brought %T", of.kind, got.object)
	}
	return object, nil
}

func (g *everywhereGetter) asked(of question, read func(context.Context, kubernetes.Interface) (any, error)) answer {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout) // not that of a caller: other callers may share the request
	defer cancel()
	config := rest.CopyConfig(g.proxy)
	config.Host = strings.TrimSuffix(config.Host, "/") + of.cluster.Path().URLPath()
	there, err := kubernetes.NewForConfig(config)
	if err != nil {
		return answer{err: fmt.Errorf("reaching the shard of %q: %w", of.cluster, err)}
	}
	object, err := read(ctx, there)
	if err != nil && !apierrors.IsNotFound(err) {
		err = fmt.Errorf("asking the shard of %q for %s %s/%s: %w", of.cluster, of.kind, of.namespace, of.name, err)
	}
	return answer{object, err}
}
