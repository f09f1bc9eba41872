package lifecycle

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
	"github.com/atoll-dev/atoll/shardserver/customresources"
	"github.com/atoll-dev/atoll/shardserver/customresources/drain"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

const (
	// Many workers, few of them for one logical cluster, which else waits for cleanupBusyWait (see drain.Gate).
	cleanupWorkers  = 32
	cleanupsAtOnce  = 2
	cleanupBusyWait = 250 * time.Millisecond
	// holdsAgain is when to look again at a definition that denies what it holds.
	holdsAgain = 100 * time.Millisecond
)

// cleanupController deletes the objects of a definition that is being deleted, in the definition's logical cluster
// alone, and lets the definition go when none is left.
type cleanupController struct {
	reader  *storage.Reader[*apiextensions.CustomResourceDefinition]
	client  metadata.Interface
	catalog *customresources.Catalog
	gate    drain.Gate
}

func newCleanupController(cfg Config, reader *storage.Reader[*apiextensions.CustomResourceDefinition]) controller.Controller {
	c := &cleanupController{reader: reader, client: cfg.Clients.Metadata, catalog: cfg.Catalog, gate: drain.Gate{AtOnce: cleanupsAtOnce}}
	return controller.Controller{
		Name:      "definition-cleanup",
		Workers:   cleanupWorkers,
		Inputs:    []controller.Input{{Resource: definitions, Keys: deletingKey}},
		Reconcile: c.reconcile,
	}
}

// waitsForCleanup tells whether a definition may only go after its objects.
func waitsForCleanup(definition *apiextensions.CustomResourceDefinition) bool {
	return definition.DeletionTimestamp != nil && apiextensions.CRDHasFinalizer(definition, apiextensions.CustomResourceCleanupFinalizer)
}

func deletingKey(event watch.Event) []controller.Key {
	definition, ok := event.Object.(*apiextensions.CustomResourceDefinition)
	if !ok || event.Type == watch.Deleted || !waitsForCleanup(definition) {
		return nil
	}
	return []controller.Key{{Cluster: logicalcluster.Of(definition), Name: definition.Name}}
}

func (c *cleanupController) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	definition, err := c.reader.Get(ctx, "", key.Name)
	if apierrors.IsNotFound(err) || (err == nil && !waitsForCleanup(definition)) {
		return controller.Result{}, nil
	}
	if err != nil {
		return controller.Result{}, err
	}
	gr := schema.GroupResource{Group: definition.Spec.Group, Resource: definition.Spec.Names.Plural}
	done := terminating(apiextensions.ConditionFalse, "NeverEstablished", "resource was never established")
	switch {
	case key.Cluster == logicalcluster.BoundCRDs:
		done = terminating(apiextensions.ConditionFalse, "NeverServed", "the definition is for what bindings in other logical clusters bind")
	case c.catalog.Barred(gr):
		done = terminating(apiextensions.ConditionFalse, "OverlappingBuiltInResource", "instances overlap with built-in resources in storage")
	case apiextensions.IsCRDConditionTrue(definition, apiextensions.Established):
		if !c.gate.Enter(key.Cluster) {
			return controller.Result{RequeueAfter: cleanupBusyWait}, nil
		}
		empty, deleted, err := c.pass(ctx, gr)
		c.gate.Leave(key.Cluster)
		if err != nil {
			_ = c.write(ctx, definition, terminating(apiextensions.ConditionTrue, "InstanceDeletionFailed", "could not issue all deletes; they are tried again"), nil)
			return controller.Result{}, fmt.Errorf("deleting the objects of definition %s: %w", definition.Name, err)
		}
		if !empty {
			progress := terminating(apiextensions.ConditionTrue, "InstanceDeletionInProgress", "CustomResource deletion is in progress")
			return controller.Result{RequeueAfter: drain.Wait(deleted, time.Since(definition.DeletionTimestamp.Time))}, c.write(ctx, definition, progress, nil)
		}
		done = terminating(apiextensions.ConditionFalse, "InstanceDeletionCompleted", "removed all instances")
	default:
		// A tenant can write the status. What has objects was established once, and the status controller says so again.
		if held, err := c.catalog.Holds(ctx, gr); err != nil || held {
			return controller.Result{RequeueAfter: holdsAgain}, err
		}
	}
	others := slices.DeleteFunc(slices.Clone(definition.Finalizers), func(f string) bool { return f == apiextensions.CustomResourceCleanupFinalizer })
	if others == nil {
		others = []string{}
	}
	return controller.Result{}, c.write(ctx, definition, done, others)
}

func terminating(status apiextensions.ConditionStatus, reason, message string) apiextensions.CustomResourceDefinitionCondition {
	return apiextensions.CustomResourceDefinitionCondition{Type: apiextensions.Terminating, Status: status, Reason: reason, Message: message}
}

// write sets the condition and, if not nil, the finalizers. It writes nothing that is there already.
func (c *cleanupController) write(ctx context.Context, definition *apiextensions.CustomResourceDefinition, condition apiextensions.CustomResourceDefinitionCondition, finalizers []string) error {
	if finalizers == nil && apiextensions.IsCRDConditionEquivalent(&condition, apiextensions.FindCRDCondition(definition, apiextensions.Terminating)) {
		return nil
	}
	changed := &apiextensions.CustomResourceDefinition{ObjectMeta: definition.ObjectMeta}
	definition.Status.DeepCopyInto(&changed.Status)
	apiextensions.SetCRDCondition(changed, condition)
	return writeStatus(ctx, c.client, changed, finalizers)
}

// pass deletes a bounded number of objects. It tells whether there was none, and none can come any more, and how many
// it deleted: they were not being deleted before, which says nothing of whether they are gone.
func (c *cleanupController) pass(ctx context.Context, gr schema.GroupResource) (empty bool, deleted int, err error) {
	instances, err := c.catalog.Instances(ctx, gr)
	if err != nil {
		return false, 0, err
	}
	if instances == nil {
		return false, 0, errors.New("the definition is established, but not served yet")
	}
	defer instances.Release()
	settled := instances.Settled // asked before the list, which so holds all that there ever will be
	progress, err := drain.Pass(ctx, instances.Store, instances.Deleter)
	return settled && progress.Left == 0, progress.Deleted, err
}
