package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/client-go/metadata"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/customresources"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

const (
	// deletesPerPass bounds what one turn of a worker deletes: the workers are shared by all tenants.
	deletesPerPass = 500
	// parallelDeletes is how many deletions of a pass run at once.
	parallelDeletes = 8
	// Deletions of objects may have to ask a conversion webhook of the tenant, and one that hangs is waited for. Hence
	// many workers, few of them for one logical cluster, which else waits for busyWait.
	cleanupWorkers  = 32
	cleanupsAtOnce  = 2
	cleanupBusyWait = 250 * time.Millisecond
	// Objects that finalizers hold are looked for again after a part of the time that they were waited for already, between
	// these bounds.
	minWait, maxWait = 100 * time.Millisecond, 5 * time.Second
	waitPart         = 4
)

// cleanupController deletes the objects of a definition that is being deleted, in the definition's logical cluster
// alone, and lets the definition go when none is left.
type cleanupController struct {
	reader  *storage.Reader[*apiextensions.CustomResourceDefinition]
	client  metadata.Interface
	catalog *customresources.Catalog

	mu sync.Mutex
	// busy counts the passes under way of each logical cluster that has any.
	busy map[logicalcluster.Name]int
}

// enter takes one of the places of a logical cluster, if there is one.
func (c *cleanupController) enter(cluster logicalcluster.Name) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy[cluster] >= cleanupsAtOnce {
		return false
	}
	c.busy[cluster]++
	return true
}

func (c *cleanupController) leave(cluster logicalcluster.Name) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy[cluster]--; c.busy[cluster] == 0 {
		delete(c.busy, cluster)
	}
}

func newCleanupController(cfg Config, reader *storage.Reader[*apiextensions.CustomResourceDefinition]) controller.Controller {
	c := &cleanupController{reader: reader, client: cfg.Clients.Metadata, catalog: cfg.Catalog, busy: map[logicalcluster.Name]int{}}
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
		if !c.enter(key.Cluster) {
			return controller.Result{RequeueAfter: cleanupBusyWait}, nil
		}
		empty, deleted, err := c.pass(ctx, gr)
		c.leave(key.Cluster)
		if err != nil {
			_ = c.write(ctx, definition, terminating(apiextensions.ConditionTrue, "InstanceDeletionFailed", "could not issue all deletes; they are tried again"), nil)
			return controller.Result{}, fmt.Errorf("deleting the objects of definition %s: %w", definition.Name, err)
		}
		if !empty {
			progress := terminating(apiextensions.ConditionTrue, "InstanceDeletionInProgress", "CustomResource deletion is in progress")
			return controller.Result{RequeueAfter: wait(deleted, time.Since(definition.DeletionTimestamp.Time))}, c.write(ctx, definition, progress, nil)
		}
		done = terminating(apiextensions.ConditionFalse, "InstanceDeletionCompleted", "removed all instances")
	default:
		// A tenant can write the status. What has objects was established once, and the status controller says so again.
		if held, err := c.catalog.Holds(ctx, gr); err != nil || held {
			return controller.Result{RequeueAfter: minWait}, err
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

// wait returns when to look again at what is left. As long as deletions get somewhere, the next pass follows at once.
func wait(deleted int, since time.Duration) time.Duration {
	if deleted > 0 {
		return time.Millisecond
	}
	return min(max(since/waitPart, minWait), maxWait)
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
	empty = instances.Settled // asked before the list, which so holds all that there ever will be
	options := &internalversion.ListOptions{Limit: deletesPerPass}
	for {
		page, err := instances.Store.List(ctx, options)
		if err != nil {
			return false, deleted, fmt.Errorf("listing: %w", err)
		}
		empty = empty && meta.LenList(page) == 0
		of, err := deletePage(ctx, instances.Deleter, page)
		deleted += of
		list, listErr := meta.ListAccessor(page)
		if err != nil || listErr != nil || list.GetContinue() == "" || deleted >= deletesPerPass {
			return empty, deleted, firstOf(err, listErr)
		}
		options.Continue = list.GetContinue()
	}
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// deletePage deletes those objects of a page that are not being deleted, and returns how many. One goes first, so that
// one request learns if none can be converted; after a failure the rest is left to the next pass.
func deletePage(ctx context.Context, deleter rest.GracefulDeleter, page runtime.Object) (deleted int, err error) {
	var deletes errgroup.Group
	deletes.SetLimit(parallelDeletes)
	var failed atomic.Bool
	err = meta.EachListItem(page, func(obj runtime.Object) error {
		object, err := meta.Accessor(obj)
		if err != nil || object.GetDeletionTimestamp() != nil {
			return err
		}
		deleted++
		namespace, name, uid := object.GetNamespace(), object.GetName(), object.GetUID()
		deletes.Go(func() error {
			if failed.Load() {
				return nil
			}
			options := &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}
			_, _, err := deleter.Delete(request.WithNamespace(ctx, namespace), name, rest.ValidateAllObjectFunc, options)
			if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // gone, or another one by now: the next pass sees it
				return nil
			}
			if err != nil {
				failed.Store(true)
			}
			return err
		})
		if deleted == 1 {
			_ = deletes.Wait() // its error stays with the group
		}
		return nil
	})
	return deleted, firstOf(deletes.Wait(), err)
}
