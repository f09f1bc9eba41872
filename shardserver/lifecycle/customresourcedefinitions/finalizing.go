package customresourcedefinitions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/customresources/crdregistry"
	"github.com/atoll-dev/atoll/shardserver/purge"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

const (
	// A logical cluster uses at most finalizingPerCluster of the workers (see purge.Limiter), and retries after
	// limitedRetry.
	finalizingWorkers    = 32
	finalizingPerCluster = 2
	limitedRetry         = 250 * time.Millisecond
	// notEstablishedRetry is the retry interval for a definition with objects that is not established.
	notEstablishedRetry = 100 * time.Millisecond
)

// finalizingController deletes the objects of a definition that is being deleted, in the definition's logical cluster,
// and removes the finalizer when no object remains.
type finalizingController struct {
	reader   *storage.Reader[*apiextensions.CustomResourceDefinition]
	client   metadata.Interface
	registry *crdregistry.Registry
	limiter  purge.Limiter
}

func newFinalizingController(cfg Config, reader *storage.Reader[*apiextensions.CustomResourceDefinition]) controller.Controller {
	c := &finalizingController{reader: reader, client: cfg.Clients.Metadata, registry: cfg.Definitions, limiter: purge.Limiter{PerCluster: finalizingPerCluster}}
	return controller.Controller{
		Name:                    "definition-cleanup",
		MaxConcurrentReconciles: finalizingWorkers,
		Sources:                 []controller.Source{{Resource: definitions, MapFunc: deletingKey}},
		Reconcile:               c.reconcile,
	}
}

// needsFinalizing returns whether a definition is being deleted and has the finalizer for its objects.
func needsFinalizing(definition *apiextensions.CustomResourceDefinition) bool {
	return definition.DeletionTimestamp != nil && apiextensions.CRDHasFinalizer(definition, apiextensions.CustomResourceCleanupFinalizer)
}

func deletingKey(event watch.Event) []controller.Request {
	definition, ok := event.Object.(*apiextensions.CustomResourceDefinition)
	if !ok || event.Type == watch.Deleted || !needsFinalizing(definition) {
		return nil
	}
	return []controller.Request{{ClusterName: logicalcluster.Of(definition), Name: definition.Name}}
}

func (c *finalizingController) reconcile(ctx context.Context, key controller.Request) (controller.Result, error) {
	definition, err := c.reader.Get(ctx, "", key.Name)
	if apierrors.IsNotFound(err) || (err == nil && !needsFinalizing(definition)) {
		return controller.Result{}, nil
	}
	if err != nil {
		return controller.Result{}, err
	}
	gr := schema.GroupResource{Group: definition.Spec.Group, Resource: definition.Spec.Names.Plural}
	done := terminating(apiextensions.ConditionFalse, "NeverEstablished", "resource was never established")
	switch {
	case key.ClusterName == logicalcluster.BoundCRDs:
		done = terminating(apiextensions.ConditionFalse, "NeverServed", "the definition is served only to bindings in other logical clusters")
	case c.registry.OverlapsBuiltIn(gr):
		done = terminating(apiextensions.ConditionFalse, "OverlappingBuiltInResource", "instances overlap with built-in resources in storage")
	case apiextensions.IsCRDConditionTrue(definition, apiextensions.Established):
		if !c.limiter.TryAcquire(key.ClusterName) {
			return controller.Result{RequeueAfter: limitedRetry}, nil
		}
		empty, deleted, err := c.deleteInstances(ctx, gr)
		c.limiter.Release(key.ClusterName)
		if err != nil {
			_ = c.writeCondition(ctx, definition, terminating(apiextensions.ConditionTrue, "InstanceDeletionFailed", "could not issue all deletes, will retry"), nil)
			return controller.Result{}, fmt.Errorf("deleting the objects of definition %s: %w", definition.Name, err)
		}
		if !empty {
			progress := terminating(apiextensions.ConditionTrue, "InstanceDeletionInProgress", "CustomResource deletion is in progress")
			return controller.Result{RequeueAfter: purge.RequeueAfter(deleted, time.Since(definition.DeletionTimestamp.Time))}, c.writeCondition(ctx, definition, progress, nil)
		}
		done = terminating(apiextensions.ConditionFalse, "InstanceDeletionCompleted", "removed all instances")
	default:
		// Tenants can write the status. A definition with objects was established; the status controller restores that.
		if exists, err := c.registry.HasInstances(ctx, gr); err != nil || exists {
			return controller.Result{RequeueAfter: notEstablishedRetry}, err
		}
	}
	others := slices.DeleteFunc(slices.Clone(definition.Finalizers), func(f string) bool { return f == apiextensions.CustomResourceCleanupFinalizer })
	if others == nil {
		others = []string{}
	}
	return controller.Result{}, c.writeCondition(ctx, definition, done, others)
}

func terminating(status apiextensions.ConditionStatus, reason, message string) apiextensions.CustomResourceDefinitionCondition {
	return apiextensions.CustomResourceDefinitionCondition{Type: apiextensions.Terminating, Status: status, Reason: reason, Message: message}
}

// writeCondition sets the condition and, unless nil, the finalizers, if they differ.
func (c *finalizingController) writeCondition(ctx context.Context, definition *apiextensions.CustomResourceDefinition, condition apiextensions.CustomResourceDefinitionCondition, finalizers []string) error {
	if finalizers == nil && apiextensions.IsCRDConditionEquivalent(&condition, apiextensions.FindCRDCondition(definition, apiextensions.Terminating)) {
		return nil
	}
	changed := &apiextensions.CustomResourceDefinition{ObjectMeta: definition.ObjectMeta}
	definition.Status.DeepCopyInto(&changed.Status)
	apiextensions.SetCRDCondition(changed, condition)
	return writeStatus(ctx, c.client, changed, finalizers)
}

// deleteInstances deletes a batch of objects. It returns whether none remains and none can be created, and how many
// deletions it began, which may wait for finalizers.
func (c *finalizingController) deleteInstances(ctx context.Context, gr schema.GroupResource) (empty bool, deleted int, err error) {
	instances, err := c.registry.AcquireInstances(ctx, gr)
	if err != nil {
		return false, 0, err
	}
	if instances == nil {
		return false, 0, errors.New("the definition is established, but not served yet")
	}
	defer instances.Release()
	quiesced := instances.Quiesced // read before the list, which then is complete
	progress, err := purge.DeleteBatch(ctx, instances.Store, instances.Deleter)
	return quiesced && progress.Remaining == 0, progress.Deleted, err
}
