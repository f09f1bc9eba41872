// Package identitycache writes down, in the logical cluster system:shard, which identities the exports of root have. Whoever
// asks for objects of kcp's own exported APIs in all logical clusters at once needs these, and must not depend on root for
// it.
//
// A shard that is not root has written down those that its storage depends on before it served anything (package
// handshake). Here others are added that root has published; those stay what they were, whatever root says.
package identitystore

import (
	"context"
	"fmt"
	"maps"
	"time"

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
	"github.com/atoll-dev/atoll/shardserver/sharding/join"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

var (
	exports    = apisv1alpha2.Resource("apiexports")
	configMaps = schema.GroupResource{Resource: "configmaps"}

	theCache = controller.Key{Cluster: logicalcluster.Shard, Namespace: join.Namespace, Name: join.Name}
)

// askAgain is how long to wait before asking again what root has published, where that is not known yet.
const askAgain = 5 * time.Second

// Config is what the controller needs.
type Config struct {
	Registry *storage.Registry
	// Client writes through the shard's own API.
	Client client.Client
	// Held are the identities that this shard stores objects by, if it is not root.
	Held join.Identities
	// Refused gets why those of root cannot be true, or nil when they can.
	Refused func(error)
}

// cacheController keeps the one ConfigMap.
type cacheController struct {
	Config
	exports    *storage.Reader[*apisv1alpha2.APIExport]
	configMaps *storage.Reader[*core.ConfigMap]
}

// Controller returns the controller of this package.
func Controller(cfg Config) controller.Controller {
	cache := &cacheController{
		Config:     cfg,
		exports:    storage.NewReader[*apisv1alpha2.APIExport](cfg.Registry, exports).Everywhere(),
		configMaps: storage.NewReader[*core.ConfigMap](cfg.Registry, configMaps),
	}
	return controller.Controller{
		Name: "apiexport-identity-cache",
		Inputs: []controller.Input{
			{Resource: exports, Keys: ofRoot, Everywhere: true},
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
	if !ok || configMap.Name != join.Name || configMap.Namespace != join.Namespace || logicalcluster.Of(configMap) != logicalcluster.Shard {
		return nil
	}
	return []controller.Key{theCache}
}

func (c *cacheController) reconcile(ctx context.Context, _ controller.Key) (controller.Result, error) {
	heard, err := c.identities(ctx)
	if apierrors.IsServiceUnavailable(err) {
		return controller.Result{RequeueAfter: askAgain}, nil
	}
	if err != nil || len(heard) == 0 {
		return controller.Result{}, err
	}
	identities, err := join.Merge(c.Held, heard)
	c.Refused(err)
	if err != nil {
		identities = c.Held // which somebody may have changed
	}
	wanted := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: join.Namespace, Name: join.Name}, Data: identities}
	stored, err := c.configMaps.Get(ctx, join.Namespace, join.Name)
	switch {
	case apierrors.IsNotFound(err):
		err = c.Client.Create(ctx, wanted)
	case err != nil || maps.Equal(stored.Data, identities):
		return controller.Result{}, err
	default:
		wanted.Labels, wanted.Annotations, wanted.ResourceVersion = stored.Labels, stored.Annotations, stored.ResourceVersion
		err = c.Client.Update(ctx, wanted)
	}
	if err != nil {
		return controller.Result{}, fmt.Errorf("writing down the identities of root's exports: %w", err)
	}
	return controller.Result{}, nil
}

// identities returns the hashes by name of export, or nothing while one has none: a part of them would pass for all.
func (c *cacheController) identities(ctx context.Context) (join.Identities, error) {
	all, err := c.exports.List(logicalcluster.With(ctx, logicalcluster.Root), "", nil)
	if err != nil {
		return nil, fmt.Errorf("listing the exports of root: %w", err)
	}
	identities := join.Identities{}
	for _, export := range all {
		if export.Status.IdentityHash == "" {
			return nil, nil
		}
		identities[export.Name] = export.Status.IdentityHash
	}
	return identities, nil
}
