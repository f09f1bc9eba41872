// Package identitycache writes down, in the logical cluster system:shard, which identities the exports of root have. Whoever
// asks for objects of kcp's own exported APIs in all logical clusters at once needs these, and must not depend on root for
// it.
package identitycache

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/kubernetes/pkg/apis/core"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// Name of the ConfigMap and its namespace. Its data are identity hashes by name of export.
const (
	Namespace = metav1.NamespaceDefault
	Name      = "apiexport-identity-cache"
)

var (
	exports    = apisv1alpha2.Resource("apiexports")
	configMaps = schema.GroupResource{Resource: "configmaps"}

	theCache = controller.Key{Cluster: logicalcluster.Shard, Namespace: Namespace, Name: Name}
)

// cacheController keeps the one ConfigMap.
type cacheController struct {
	exports    *storage.Reader[*apisv1alpha2.APIExport]
	configMaps *storage.Reader[*core.ConfigMap]
	client     client.Client
}

// Controller returns the controller of this package, which writes with the client through the shard's own API.
func Controller(registry *storage.Registry, c client.Client) controller.Controller {
	cache := &cacheController{
		exports:    storage.NewReader[*apisv1alpha2.APIExport](registry, exports),
		configMaps: storage.NewReader[*core.ConfigMap](registry, configMaps),
		client:     c,
	}
	return controller.Controller{
		Name: "apiexport-identity-cache",
		Inputs: []controller.Input{
			{Resource: exports, Keys: ofRoot},
			{Resource: configMaps, Keys: cacheItself},
		},
		Workers:   1,
		Reconcile: cache.reconcile,
	}
}

func ofRoot(event watch.Event) []controller.Key {
	if export, ok := event.Object.(*apisv1alpha2.APIExport); !ok || logicalcluster.Of(export) != logicalcluster.Root {
		return nil
	}
	return []controller.Key{theCache}
}

func cacheItself(event watch.Event) []controller.Key {
	configMap, ok := event.Object.(*core.ConfigMap)
	if !ok || configMap.Name != Name || configMap.Namespace != Namespace || logicalcluster.Of(configMap) != logicalcluster.Shard {
		return nil
	}
	return []controller.Key{theCache}
}

func (c *cacheController) reconcile(ctx context.Context, _ controller.Key) (controller.Result, error) {
	identities, err := c.identities(ctx)
	if err != nil || len(identities) == 0 {
		return controller.Result{}, err
	}
	wanted := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: Name}, Data: identities}
	stored, err := c.configMaps.Get(ctx, Namespace, Name)
	switch {
	case apierrors.IsNotFound(err):
		err = c.client.Create(ctx, wanted)
	case err != nil || maps.Equal(stored.Data, identities):
		return controller.Result{}, err
	default:
		wanted.Labels, wanted.Annotations, wanted.ResourceVersion = stored.Labels, stored.Annotations, stored.ResourceVersion
		err = c.client.Update(ctx, wanted)
	}
	if err != nil {
		return controller.Result{}, fmt.Errorf("writing down the identities of root's exports: %w", err)
	}
	return controller.Result{}, nil
}

// identities returns the hashes by name of export, or nothing while one has none: a part of them would pass for all.
func (c *cacheController) identities(ctx context.Context) (map[string]string, error) {
	all, err := c.exports.List(logicalcluster.With(ctx, logicalcluster.Root), "", nil)
	if err != nil {
		return nil, fmt.Errorf("listing the exports of root: %w", err)
	}
	identities := map[string]string{}
	for _, export := range all {
		if export.Status.IdentityHash == "" {
			return nil, nil
		}
		identities[export.Name] = export.Status.IdentityHash
	}
	return identities, nil
}
