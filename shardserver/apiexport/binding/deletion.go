package binding

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiexport/claims"
	"github.com/atoll-dev/atoll/shardserver/apiexport/definitions"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/customresources/crdstorage"
	"github.com/atoll-dev/atoll/shardserver/purge"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

const (
	// parallelLists bounds the lists of one binding that run at once.
	parallelLists = 8
	// Of the deletionWorkers, at most maxDeletionsPerCluster work on one logical cluster; its other bindings are requeued
	// after limiterRetryInterval.
	deletionWorkers        = 32
	maxDeletionsPerCluster = 2
	limiterRetryInterval   = 250 * time.Millisecond
	// inFlightRetryInterval is the retry interval while requests that could create objects are in flight.
	inFlightRetryInterval = 20 * time.Millisecond
	// countsMaxAge is the maximum age of the counts in the condition.
	countsMaxAge = 2 * time.Second
)

// deletionController deletes the objects of the resources of a binding that is being deleted, in its logical cluster
// only, and then removes the finalizer of the binding.
type deletionController struct {
	cfg      Config
	bindings *storage.Reader[*apisv1alpha2.APIBinding]
	clusters *storage.Reader[*corev1alpha1.LogicalCluster]
	limiter  purge.Limiter
}

func newDeletionController(cfg Config) controller.Controller {
	c := &deletionController{
		cfg:      cfg,
		bindings: storage.NewReader[*apisv1alpha2.APIBinding](cfg.Registry, apibindings),
		clusters: storage.NewReader[*corev1alpha1.LogicalCluster](cfg.Registry, logicalClusters),
		limiter:  purge.Limiter{PerCluster: maxDeletionsPerCluster},
	}
	return controller.Controller{
		Name: "apibinding-deletion",
		Sources: []controller.Source{
			{Resource: apibindings, MapFunc: deletingKeys},
			{Resource: apibindings, MapFunc: c.successorKeys},
			{Resource: logicalClusters, MapFunc: c.deletingClusterKeys},
		},
		MaxConcurrentReconciles: deletionWorkers,
		Reconcile:               c.reconcile,
	}
}

func isPendingDeletion(binding *apisv1alpha2.APIBinding) bool {
	return binding.DeletionTimestamp != nil && controllerutil.ContainsFinalizer(binding, apisv1alpha2.APIBindingFinalizer)
}

func deletingKeys(event watch.Event) []controller.Request {
	binding, ok := event.Object.(*apisv1alpha2.APIBinding)
	if !ok || event.Type == watch.Deleted || !isPendingDeletion(binding) {
		return nil
	}
	return controller.RequestForObject(event)
}

func (c *deletionController) reconcile(ctx context.Context, key controller.Request) (controller.Result, error) {
	binding, err := c.bindings.Get(ctx, "", key.Name)
	if apierrors.IsNotFound(err) || (err == nil && !isPendingDeletion(binding)) {
		return controller.Result{}, nil
	}
	if err != nil {
		return controller.Result{}, err
	}
	if waiting, err := c.waitForSuccessor(ctx, binding); waiting || err != nil {
		return controller.Result{RequeueAfter: successorRetryInterval}, err
	}
	if !c.limiter.TryAcquire(key.ClusterName) {
		return controller.Result{RequeueAfter: limiterRetryInterval}, nil
	}
	state, err := c.deleteObjects(ctx, binding)
	c.limiter.Release(key.ClusterName)
	changed := binding.DeepCopy()
	since := c.cfg.Clock.Since(binding.DeletionTimestamp.Time)
	switch {
	case err != nil:
		conditionsv1alpha1.MarkFalse(changed, apisv1alpha2.BindingResourceDeleteSuccess, apisv1alpha2.ResourceDeletionFailedReason,
			conditionsv1alpha1.SeverityError, "Not all objects could be deleted; this is tried again: %v", err)
		return controller.Result{}, errors.Join(c.writeStatus(ctx, binding, changed), fmt.Errorf("deleting the objects of APIBinding %q: %w", binding.Name, err))
	case state.requestsInFlight && len(state.objects) == 0:
		return controller.Result{RequeueAfter: inFlightRetryInterval}, nil // short: no status update
	case len(state.objects) > 0:
		result := controller.Result{RequeueAfter: purge.RequeueAfter(state.deleted, since)}
		if areCountsFresh(binding, c.cfg.Clock.Now()) {
			return result, nil
		}
		reason, message := state.describe()
		conditionsv1alpha1.MarkFalse(changed, apisv1alpha2.BindingResourceDeleteSuccess, reason, conditionsv1alpha1.SeverityInfo, "%s", message)
		return result, c.writeStatus(ctx, binding, changed)
	}
	// Claims stay effective until here, because the provider may have to clean up claimed objects.
	released, err := c.cfg.Claims.Release(ctx, changed)
	switch {
	case err != nil:
		return controller.Result{}, fmt.Errorf("releasing the claims of APIBinding %q: %w", binding.Name, err)
	case !released:
		return controller.Result{RequeueAfter: claims.ReleaseRetryInterval}, c.writeStatus(ctx, binding, changed)
	}
	return controller.Result{}, c.removeFinalizer(ctx, binding)
}

// deletionProgress counts what a deletion waits for.
type deletionProgress struct {
	objects    map[string]int
	finalizers map[string]int
	deleted    int
	// requestsInFlight means that requests may still create objects.
	requestsInFlight bool
}

func (d *deletionProgress) describe() (reason, message string) {
	if len(d.finalizers) > 0 {
		return apisv1alpha2.SomeFinalizersRemainReason, fmt.Sprintf("Objects remain: %s; they wait for the controllers of the finalizers %s", formatCounts(d.objects), formatCounts(d.finalizers))
	}
	return apisv1alpha2.SomeResourcesRemainReason, fmt.Sprintf("Objects remain: %s; they are being deleted", formatCounts(d.objects))
}

func formatCounts(counts map[string]int) string {
	texts := make([]string, 0, len(counts))
	for name, count := range counts {
		texts = append(texts, fmt.Sprintf("%s (%d)", name, count))
	}
	slices.Sort(texts)
	return strings.Join(texts, ", ")
}

func areCountsFresh(binding *apisv1alpha2.APIBinding, now time.Time) bool {
	condition := conditionsv1alpha1.Get(binding, apisv1alpha2.BindingResourceDeleteSuccess)
	if condition == nil || condition.Reason == apisv1alpha2.ResourceDeletionFailedReason {
		return false
	}
	age := now.Sub(condition.LastTransitionTime.Time)
	return age >= 0 && age < countsMaxAge // negative if the clock of another replica is ahead
}

// listOthers returns the bindings of the logical cluster that may adopt objects of a binding. It reads consistently, because
// objects of an adopting binding that the cache misses would be lost.
func (c *deletionController) listOthers(ctx context.Context, binding *apisv1alpha2.APIBinding) ([]*apisv1alpha2.APIBinding, error) {
	all, err := c.bindings.ListLatest(ctx, "", nil)
	return slices.DeleteFunc(all, func(other *apisv1alpha2.APIBinding) bool {
		return other.Name == binding.Name || other.DeletionTimestamp != nil
	}), err
}

// deleteObjects deletes the objects of all bound resources of a binding that no other binding adopts.
func (c *deletionController) deleteObjects(ctx context.Context, binding *apisv1alpha2.APIBinding) (*deletionProgress, error) {
	state := &deletionProgress{objects: map[string]int{}, finalizers: map[string]int{}}
	others, err := c.listOthers(ctx, binding)
	if err != nil {
		return state, err
	}
	done, inFlight := c.findDone(ctx, others, binding)
	state.requestsInFlight = inFlight
	var errs []error
	for i, bound := range binding.Status.BoundResources {
		if done[i] {
			continue
		}
		adopted, err := c.isBoundByOther(ctx, others, bound)
		if err == nil && !adopted {
			err = c.deleteResourceObjects(ctx, binding, bound, state)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", boundGroupResource(bound), err))
		}
	}
	return state, errors.Join(errs...)
}

// findDone reports for each bound resource whether the binding has nothing to delete: storage is virtual, another binding
// adopts the objects, or there are none. It asks for all resources at once, because each answer waits for etcd. Resources
// with errors are not done. inFlight means that requests may still create objects of a resource that is done.
func (c *deletionController) findDone(ctx context.Context, others []*apisv1alpha2.APIBinding, binding *apisv1alpha2.APIBinding) (done []bool, inFlight bool) {
	resources := binding.Status.BoundResources
	done = make([]bool, len(resources))
	var requests atomic.Bool
	var running errgroup.Group
	running.SetLimit(parallelLists)
	for i, bound := range resources {
		running.Go(func() error {
			if len(bound.StorageVersions) == 0 {
				done[i] = true
				return nil
			}
			adopted, err := c.isBoundByOther(ctx, others, bound)
			if err != nil || adopted {
				done[i] = adopted && err == nil
				return nil
			}
			lister, _, quiesced, release, err := c.acquireBoundObjects(ctx, bound)
			if err != nil {
				done[i] = apierrors.IsServiceUnavailable(err) && c.isStale(ctx, binding, bound)
				return nil
			}
			defer release()
			list, err := lister.List(ctx, &internalversion.ListOptions{Limit: 1})
			done[i] = err == nil && meta.LenList(list) == 0
			if done[i] && !quiesced {
				requests.Store(true)
			}
			return nil
		})
	}
	_ = running.Wait()
	return done, requests.Load()
}

// isStale reports whether a bound resource has no objects, and can get none because its definition and its schema are gone.
func (c *deletionController) isStale(ctx context.Context, binding *apisv1alpha2.APIBinding, bound apisv1alpha2.BoundAPIResource) bool {
	definition, err := c.cfg.Definitions.Find(ctx, types.UID(bound.Schema.UID))
	if definition != nil || err != nil {
		return false
	}
	found, err := findBoundSchema(ctx, c.cfg.Exports, binding, bound)
	if err != nil || (found != nil && string(found.UID) == bound.Schema.UID) {
		return false
	}
	stored := &storage.Resource{Prefix: crdstorage.Prefix(boundGroupResource(bound), bound.Schema.IdentityHash)}
	counts, err := c.cfg.Keys.CountIn(ctx, []*storage.Resource{stored}, "")
	return err == nil && counts[0] == 0
}

func boundGroupResource(bound apisv1alpha2.BoundAPIResource) schema.GroupResource {
	return schema.GroupResource{Group: bound.Group, Resource: bound.Resource}
}

// isBoundByOther reports whether another binding of the logical cluster binds the same objects with the same schema.
func (c *deletionController) isBoundByOther(ctx context.Context, others []*apisv1alpha2.APIBinding, bound apisv1alpha2.BoundAPIResource) (bool, error) {
	for _, other := range others {
		same, err := c.exportsSameSchema(ctx, other, bound)
		if same || err != nil {
			return same, err
		}
	}
	return false, nil
}

// exportsSameSchema reports whether the export of a binding offers a resource with the identity and schema of a bound resource.
func (c *deletionController) exportsSameSchema(ctx context.Context, other *apisv1alpha2.APIBinding, bound apisv1alpha2.BoundAPIResource) (bool, error) {
	reference, err := apiindex.ReferenceOf(other)
	if err != nil {
		return false, nil // a binding without valid reference adopts nothing
	}
	export, err := c.cfg.Exports.Resolve(ctx, reference)
	if err != nil {
		return false, client.IgnoreNotFound(err)
	}
	if export.Status.IdentityHash != bound.Schema.IdentityHash {
		return false, nil
	}
	for _, resource := range export.Spec.Resources {
		if resource.Group != bound.Group || resource.Name != bound.Resource {
			continue
		}
		found, err := c.cfg.Exports.GetSchema(ctx, logicalcluster.Of(export), resource.Schema)
		if err != nil {
			return false, client.IgnoreNotFound(err)
		}
		return string(found.UID) == bound.Schema.UID, nil
	}
	return false, nil
}

// deleteResourceObjects deletes the objects of one resource and adds the remaining ones to left.
func (c *deletionController) deleteResourceObjects(ctx context.Context, binding *apisv1alpha2.APIBinding, bound apisv1alpha2.BoundAPIResource, state *deletionProgress) error {
	lister, deleter, quiesced, release, err := c.acquireBoundObjects(ctx, bound)
	if apierrors.IsServiceUnavailable(err) {
		return errors.Join(err, c.restoreDefinition(ctx, binding, bound))
	}
	if err != nil {
		return err
	}
	defer release()
	progress, err := purge.DeleteBatch(ctx, lister, deleter)
	state.deleted += progress.Deleted
	if progress.Remaining > 0 {
		state.objects[boundGroupResource(bound).String()] = progress.Remaining
	}
	for finalizer, count := range progress.Finalizers {
		state.finalizers[finalizer] += count
	}
	state.requestsInFlight = state.requestsInFlight || !quiesced // quiesced was read before the list, which is complete if it is true
	return err
}

// acquireBoundObjects returns the storage of a bound resource below the API handlers.
func (c *deletionController) acquireBoundObjects(ctx context.Context, bound apisv1alpha2.BoundAPIResource) (rest.Lister, rest.GracefulDeleter, bool, func(), error) {
	gr := boundGroupResource(bound)
	if definitions.IsCompiledIn(c.cfg.Registry, gr, bound.Schema.IdentityHash) {
		builtIn, err := c.cfg.Registry.Get(gr)
		if err != nil {
			return nil, nil, false, nil, err
		}
		deleter, ok := builtIn.Store.(rest.GracefulDeleter)
		if !ok {
			return nil, nil, false, nil, fmt.Errorf("objects cannot be deleted: their registry is %T", builtIn.Store)
		}
		return builtIn.Store, deleter, true, func() {}, nil
	}
	instances, err := c.cfg.Custom.AcquireInstances(bindings.WithIdentity(ctx, bound.Schema.IdentityHash), gr)
	if err != nil {
		return nil, nil, false, nil, err
	}
	if instances == nil {
		return nil, nil, false, nil, errors.New("the resource is not served")
	}
	return instances.Store, instances.Deleter, instances.Quiesced, instances.Release, nil
}

// restoreDefinition recreates the definition of a bound resource if it was deleted, because objects cannot be decoded
// without it. For bindings that are not being deleted, clusterController does so.
func (c *deletionController) restoreDefinition(ctx context.Context, binding *apisv1alpha2.APIBinding, bound apisv1alpha2.BoundAPIResource) error {
	provider, err := logicalcluster.ParseName(binding.Status.APIExportClusterName)
	if err != nil {
		return err
	}
	schema, err := c.cfg.Exports.GetSchema(ctx, provider, bound.Schema.Name)
	if apierrors.IsNotFound(err) || (err == nil && string(schema.UID) != bound.Schema.UID) {
		return fmt.Errorf("its definition and schema do not exist; an administrator of the shard has to restore definition %q in %s", bound.Schema.UID, logicalcluster.BoundCRDs)
	}
	if err != nil {
		return err
	}
	_, err = c.cfg.Definitions.Ensure(ctx, schema)
	return err
}

// writeStatus writes the status if it changed.
func (c *deletionController) writeStatus(ctx context.Context, binding, changed *apisv1alpha2.APIBinding) error {
	if equality.Semantic.DeepEqual(binding.Status, changed.Status) {
		return nil
	}
	if err := c.cfg.Clients.Typed.Status().Update(ctx, changed); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the status of APIBinding %q: %w", binding.Name, err)
	}
	return nil
}

// removeFinalizer removes the finalizer of a binding.
func (c *deletionController) removeFinalizer(ctx context.Context, binding *apisv1alpha2.APIBinding) error {
	changed := binding.DeepCopy()
	if len(binding.Finalizers) > 1 { // the object stays visible
		conditionsv1alpha1.MarkTrue(changed, apisv1alpha2.BindingResourceDeleteSuccess)
		if err := c.writeStatus(ctx, binding, changed); err != nil {
			return err
		}
	}
	controllerutil.RemoveFinalizer(changed, apisv1alpha2.APIBindingFinalizer)
	if err := c.cfg.Clients.Typed.Update(ctx, changed); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("removing the finalizer of APIBinding %q: %w", binding.Name, err)
	}
	return nil
}
