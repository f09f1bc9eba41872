package binding

import (
	"context"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiexport/claims"
	"github.com/atoll-dev/atoll/shardserver/apiexport/definitions"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
	ownapiextensions "github.com/atoll-dev/atoll/shardserver/apis/apiextensions"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/customresources/crdregistry"
	"github.com/atoll-dev/atoll/shardserver/lifecycle/content"
	"github.com/atoll-dev/atoll/shardserver/loopback"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// maxConcurrentReconciles is high because reconciliations mostly wait for etcd.
const maxConcurrentReconciles = 24

// requestName is the name in the keys of logical clusters.
const requestName = "bindings"

// Config holds the dependencies of the controllers.
type Config struct {
	Registry *storage.Registry
	// Clients write through the shard's own API.
	Clients *loopback.Clients
	Exports *apiindex.Resolver
	// Consumers indexes the bindings by export.
	Consumers *apiindex.ReferenceIndex[*apisv1alpha2.APIBinding]
	// Definitions creates the CustomResourceDefinitions of bound schemas.
	Definitions *definitions.Manager
	// Custom returns the storages of bound resources.
	Custom *crdregistry.Registry
	// Keys counts objects of bound resources whose definition is gone.
	Keys content.KeyCounter
	// Claims removes the claim labels of bindings that are being deleted.
	Claims *claims.Releaser
	// ShardName is the value of the label "shard" of metrics.
	ShardName string
	Clock     clock.PassiveClock
}

// Controllers returns the controllers of this package.
func Controllers(cfg Config) []controller.Controller {
	return []controller.Controller{newClusterController(cfg), newDeletionController(cfg)}
}

// clusterController reconciles all bindings of a logical cluster.
type clusterController struct {
	cfg      Config
	bindings *storage.Reader[*apisv1alpha2.APIBinding]
	clusters *storage.Reader[*corev1alpha1.LogicalCluster]
	// definitions reads the CustomResourceDefinitions of logical clusters.
	definitions *storage.Reader[*apiextensions.CustomResourceDefinition]

	mu sync.Mutex
	// fingerprints are those of the last event of each export.
	fingerprints map[bindings.ExportKey]fingerprint
	// waiters are the logical clusters to requeue when a definition is established or deleted.
	waiters map[types.UID]sets.Set[logicalcluster.Name]
}

func newClusterController(cfg Config) controller.Controller {
	c := &clusterController{
		cfg:          cfg,
		bindings:     storage.NewReader[*apisv1alpha2.APIBinding](cfg.Registry, apibindings),
		clusters:     storage.NewReader[*corev1alpha1.LogicalCluster](cfg.Registry, logicalClusters),
		definitions:  storage.NewReader[*apiextensions.CustomResourceDefinition](cfg.Registry, ownapiextensions.Definitions),
		fingerprints: map[bindings.ExportKey]fingerprint{},
		waiters:      map[types.UID]sets.Set[logicalcluster.Name]{},
	}
	return controller.Controller{
		Name: "apibinding",
		Sources: []controller.Source{
			{Resource: apibindings, MapFunc: c.bindingKeys},
			{Resource: apisv1alpha2.Resource("apiexports"), MapFunc: c.exportKeys, Global: true},
			{Resource: apisv1alpha1.Resource("apiresourceschemas"), MapFunc: c.schemaKeys, Global: true},
			{Resource: ownapiextensions.Definitions, MapFunc: c.definitionKeys},
			{Resource: logicalClusters, MapFunc: clusterKeys},
		},
		MaxConcurrentReconciles: maxConcurrentReconciles,
		Reconcile:               c.reconcile,
	}
}

var (
	apibindings     = apisv1alpha2.Resource("apibindings")
	logicalClusters = corev1alpha1.Resource("logicalclusters")
)

func keyForCluster(cluster logicalcluster.Name) controller.Request {
	return controller.Request{ClusterName: cluster, Name: requestName}
}

func (c *clusterController) bindingKeys(event watch.Event) []controller.Request {
	binding, ok := event.Object.(*apisv1alpha2.APIBinding)
	if !ok {
		return nil
	}
	// The index has its own watch. Events of the export that follow must find this binding in it.
	c.cfg.Consumers.Observe(binding, event.Type == watch.Deleted)
	return []controller.Request{keyForCluster(logicalcluster.Of(binding))}
}

// exportKeys returns the logical clusters with bindings to an export, if its fingerprint changed.
func (c *clusterController) exportKeys(event watch.Event) []controller.Request {
	export, ok := event.Object.(*apisv1alpha2.APIExport)
	if !ok || !c.updateFingerprint(export, event.Type == watch.Deleted) {
		return nil
	}
	return c.consumerKeys(export)
}

func (c *clusterController) consumerKeys(export *apisv1alpha2.APIExport) []controller.Request {
	var keys []controller.Request
	for _, consumer := range c.cfg.Consumers.RequestsFor(export) {
		if !c.cfg.Registry.IsHidden(consumer.ClusterName) { // another shard writes its bindings
			keys = append(keys, keyForCluster(consumer.ClusterName))
		}
	}
	return keys
}

func (c *clusterController) updateFingerprint(export *apisv1alpha2.APIExport, deleted bool) bool {
	name, current := apiindex.ExportKeyOf(export), computeFingerprint(export)
	c.mu.Lock()
	defer c.mu.Unlock()
	previous, known := c.fingerprints[name]
	if deleted {
		delete(c.fingerprints, name)
		return true
	}
	c.fingerprints[name] = current
	return !known || previous != current
}

// schemaKeys returns the logical clusters with bindings to exports that offer an added or deleted schema.
func (c *clusterController) schemaKeys(event watch.Event) []controller.Request {
	schema, ok := event.Object.(*apisv1alpha1.APIResourceSchema)
	if !ok || event.Type == watch.Modified {
		return nil // the spec of a schema is immutable
	}
	return c.schemaConsumerKeys(logicalcluster.Of(schema), schema.Name)
}

// schemaConsumerKeys returns the logical clusters with bindings to exports that offer a schema.
func (c *clusterController) schemaConsumerKeys(cluster logicalcluster.Name, schema string) []controller.Request {
	exports, err := c.cfg.Exports.List(context.Background(), cluster)
	if err != nil {
		return nil // exports are not served yet; their events follow
	}
	var keys []controller.Request
	for _, export := range exports {
		for _, resource := range export.Spec.Resources {
			if resource.Schema == schema {
				keys = append(keys, c.consumerKeys(export)...)
				break
			}
		}
	}
	return keys
}

// definitionKeys returns the logical cluster of a CustomResourceDefinition. For one made of a schema, it returns the
// logical clusters that wait for it and, if it was deleted, those that bind the schema.
func (c *clusterController) definitionKeys(event watch.Event) []controller.Request {
	definition, ok := event.Object.(*apiextensions.CustomResourceDefinition)
	if !ok {
		return nil
	}
	cluster := logicalcluster.Of(definition)
	if cluster != logicalcluster.BoundCRDs {
		return []controller.Request{keyForCluster(cluster)}
	}
	if event.Type != watch.Deleted {
		if !apiextensions.IsCRDConditionTrue(definition, apiextensions.Established) {
			return nil
		}
		return c.popWaiters(types.UID(definition.Name))
	}
	keys := c.popWaiters(types.UID(definition.Name))
	if provider, err := logicalcluster.ParseName(definition.Annotations[apisv1alpha2.SchemaClusterAnnotationKey]); err == nil {
		keys = append(keys, c.schemaConsumerKeys(provider, definition.Annotations[apisv1alpha2.SchemaNameAnnotationKey])...)
	}
	return keys
}

// addWaiter requeues a logical cluster when a definition is established or deleted.
func (c *clusterController) addWaiter(uid types.UID, cluster logicalcluster.Name) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiters[uid] == nil {
		c.waiters[uid] = sets.New[logicalcluster.Name]()
	}
	c.waiters[uid].Insert(cluster)
}

// popWaiters returns and removes the waiters of a definition.
func (c *clusterController) popWaiters(uid types.UID) []controller.Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	var keys []controller.Request
	for cluster := range c.waiters[uid] {
		keys = append(keys, keyForCluster(cluster))
	}
	delete(c.waiters, uid)
	return keys
}

// clusterKeys returns a logical cluster that was added, or whose reservations are missing or invalid. Most events are
// other updates, which do not affect bindings.
func clusterKeys(event watch.Event) []controller.Request {
	cluster, ok := event.Object.(*corev1alpha1.LogicalCluster)
	if !ok || event.Type == watch.Deleted {
		return nil
	}
	if event.Type == watch.Modified {
		if _, err := parseReservations(cluster.Annotations[corev1alpha1.ResourceBindingsAnnotationKey]); err == nil {
			return nil
		}
	}
	return []controller.Request{keyForCluster(logicalcluster.Of(cluster))}
}
