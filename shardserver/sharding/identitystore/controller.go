// Package identitystore stores the identity hashes of root's APIExports in a ConfigMap in the logical cluster
// system:shard. Wildcard requests for kcp's own exported APIs need them and must not depend on root.
//
// Shards other than root store the identities that their storage depends on before they serve requests (package join).
// The controller adds others that root has published, and replaces none.
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

	storeRequest = controller.Request{ClusterName: logicalcluster.Shard, Namespace: join.Namespace, Name: join.Name}
)

// retryInterval is the delay while the exports of root are not synced.
const retryInterval = 5 * time.Second

// Config configures the controller.
type Config struct {
	Registry *storage.Registry
	// Client is a loopback client.
	Client client.Client
	// Stored are the identities under which this shard stores objects. It is nil on the root shard.
	Stored join.Identities
	// OnConflict is called with the conflict of root's identities with those of this shard, or with nil.
	OnConflict func(error)
}

// storeController reconciles the ConfigMap.
type storeController struct {
	Config
	exports    *storage.Reader[*apisv1alpha2.APIExport]
	configMaps *storage.Reader[*core.ConfigMap]
}

// Controller returns the controller of this package.
func Controller(cfg Config) controller.Controller {
	c := &storeController{
		Config:     cfg,
		exports:    storage.NewReader[*apisv1alpha2.APIExport](cfg.Registry, exports).Global(),
		configMaps: storage.NewReader[*core.ConfigMap](cfg.Registry, configMaps),
	}
	return controller.Controller{
		Name: "apiexport-identity-cache",
		Sources: []controller.Source{
			{Resource: exports, MapFunc: exportKey, Global: true},
			{Resource: configMaps, MapFunc: configMapKey},
		},
		MaxConcurrentReconciles: 1,
		Reconcile:               c.reconcile,
	}
}

func exportKey(event watch.Event) []controller.Request {
	if export, ok := event.Object.(*apisv1alpha2.APIExport); !ok || logicalcluster.Of(export) != logicalcluster.Root {
		return nil
	}
	return []controller.Request{storeRequest}
}

func configMapKey(event watch.Event) []controller.Request {
	configMap, ok := event.Object.(*core.ConfigMap)
	if !ok || configMap.Name != join.Name || configMap.Namespace != join.Namespace || logicalcluster.Of(configMap) != logicalcluster.Shard {
		return nil
	}
	return []controller.Request{storeRequest}
}

func (c *storeController) reconcile(ctx context.Context, _ controller.Request) (controller.Result, error) {
	published, err := c.identities(ctx)
	if apierrors.IsServiceUnavailable(err) {
		return controller.Result{RequeueAfter: retryInterval}, nil
	}
	if err != nil || len(published) == 0 {
		return controller.Result{}, err
	}
	identities, err := join.Merge(c.Stored, published)
	c.OnConflict(err)
	if err != nil {
		identities = c.Stored // restores them if the ConfigMap was changed
	}
	desired := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: join.Namespace, Name: join.Name}, Data: identities}
	stored, err := c.configMaps.Get(ctx, join.Namespace, join.Name)
	switch {
	case apierrors.IsNotFound(err):
		err = c.Client.Create(ctx, desired)
	case err != nil || maps.Equal(stored.Data, identities):
		return controller.Result{}, err
	default:
		desired.Labels, desired.Annotations, desired.ResourceVersion = stored.Labels, stored.Annotations, stored.ResourceVersion
		err = c.Client.Update(ctx, desired)
	}
	if err != nil {
		return controller.Result{}, fmt.Errorf("storing the identities of root's exports: %w", err)
	}
	return controller.Result{}, nil
}

// identities returns the hashes by name of the export, or nil if one is missing, because the stored set must be
// complete.
func (c *storeController) identities(ctx context.Context) (join.Identities, error) {
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
