package binding

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiexport/claims"
	"github.com/atoll-dev/atoll/shardserver/apiexport/definitions"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/customresources/drain"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

const (
	// Many workers, few of them for one logical cluster, which else waits for busyWait (see drain.Gate).
	deletionWorkers        = 32
	maxDeletionsPerCluster = 2
	gateRetryInterval      = 250 * time.Millisecond
	// inFlightRetryInterval is when to look again whether requests that could create objects have ended.
	inFlightRetryInterval = 20 * time.Millisecond
	// countsMaxAge is how long the counts of the condition may lag behind.
	countsMaxAge = 2 * time.Second
)

// deletionController deletes the objects that came by a binding which is being deleted, in its logical cluster alone,
// and lets the binding go when none is left.
type deletionController struct {
	cfg      Config
	bindings *storage.Reader[*apisv1alpha2.APIBinding]
	gate     drain.Gate
}

func newDeletionController(cfg Config) controller.Controller {
	c := &deletionController{
		cfg:      cfg,
		bindings: storage.NewReader[*apisv1alpha2.APIBinding](cfg.Registry, apibindings),
		gate:     drain.Gate{AtOnce: maxDeletionsPerCluster},
	}
	return controller.Controller{
		Name:      "apibinding-deletion",
		Inputs:    []controller.Input{{Resource: apibindings, Keys: deletingKeys}},
		Workers:   deletionWorkers,
		Reconcile: c.reconcile,
	}
}

func awaitsDeletion(binding *apisv1alpha2.APIBinding) bool {
	return binding.DeletionTimestamp != nil && controllerutil.ContainsFinalizer(binding, apisv1alpha2.APIBindingFinalizer)
}

func deletingKeys(event watch.Event) []controller.Key {
	binding, ok := event.Object.(*apisv1alpha2.APIBinding)
	if !ok || event.Type == watch.Deleted || !awaitsDeletion(binding) {
		return nil
	}
	return controller.ObjectKey(event)
}

func (c *deletionController) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	binding, err := c.bindings.Get(ctx, "", key.Name)
	if apierrors.IsNotFound(err) || (err == nil && !awaitsDeletion(binding)) {
		return controller.Result{}, nil
	}
	if err != nil {
		return controller.Result{}, err
	}
	if !c.gate.Enter(key.Cluster) {
		return controller.Result{RequeueAfter: gateRetryInterval}, nil
	}
	left, err := c.deleteObjects(ctx, binding)
	c.gate.Leave(key.Cluster)
	changed := binding.DeepCopy()
	since := c.cfg.Clock.Since(binding.DeletionTimestamp.Time)
	switch {
	case err != nil:
		conditionsv1alpha1.MarkFalse(changed, apisv1alpha2.BindingResourceDeleteSuccess, apisv1alpha2.ResourceDeletionFailedReason,
			conditionsv1alpha1.SeverityError, "Not all objects could be deleted; this is tried again: %v", err)
		return controller.Result{}, errors.Join(c.writeStatus(ctx, binding, changed), fmt.Errorf("deleting what came by APIBinding %q: %w", binding.Name, err))
	case left.requestsInFlight && len(left.objects) == 0:
		return controller.Result{RequeueAfter: inFlightRetryInterval}, nil // requests end by themselves; nobody has to know
	case len(left.objects) > 0:
		result := controller.Result{RequeueAfter: drain.Wait(left.deleted, since)}
		if countsAreFresh(binding, c.cfg.Clock.Now()) {
			return result, nil
		}
		reason, message := left.describe()
		conditionsv1alpha1.MarkFalse(changed, apisv1alpha2.BindingResourceDeleteSuccess, reason, conditionsv1alpha1.SeverityInfo, "%s", message)
		return result, c.writeStatus(ctx, binding, changed)
	}
	// Claims hold until here: who provides the API may have to clean up in claimed objects.
	released, err := c.cfg.Claims.Release(ctx, changed)
	switch {
	case err != nil:
		return controller.Result{}, fmt.Errorf("ending the claims of APIBinding %q: %w", binding.Name, err)
	case !released:
		return controller.Result{RequeueAfter: claims.ReleaseRetryInterval}, c.writeStatus(ctx, binding, changed)
	}
	return controller.Result{}, c.removeFinalizer(ctx, binding)
}

// remaining is what a deletion waits for.
type remaining struct {
	objects    map[string]int
	finalizers map[string]int
	deleted    int
	// requestsInFlight says that requests may still be creating objects.
	requestsInFlight bool
}

func (r *remaining) describe() (reason, message string) {
	if len(r.finalizers) > 0 {
		return apisv1alpha2.SomeFinalizersRemainReason, fmt.Sprintf("Objects remain: %s; they wait for who set the finalizers %s", formatCounts(r.objects), formatCounts(r.finalizers))
	}
	return apisv1alpha2.SomeResourcesRemainReason, fmt.Sprintf("Objects remain: %s; they are being deleted", formatCounts(r.objects))
}

func formatCounts(of map[string]int) string {
	texts := make([]string, 0, len(of))
	for name, count := range of {
		texts = append(texts, fmt.Sprintf("%s (%d)", name, count))
	}
	slices.Sort(texts)
	return strings.Join(texts, ", ")
}

func countsAreFresh(binding *apisv1alpha2.APIBinding, now time.Time) bool {
	condition := conditionsv1alpha1.Get(binding, apisv1alpha2.BindingResourceDeleteSuccess)
	if condition == nil || condition.Reason == apisv1alpha2.ResourceDeletionFailedReason {
		return false
	}
	age := now.Sub(condition.LastTransitionTime.Time)
	return age >= 0 && age < countsMaxAge // what is in the future has the clock of another replica
}

// deleteObjects deletes the objects of all resources that a binding has bound and that no other takes over.
func (c *deletionController) deleteObjects(ctx context.Context, binding *apisv1alpha2.APIBinding) (*remaining, error) {
	left := &remaining{objects: map[string]int{}, finalizers: map[string]int{}}
	// Not from the cache: what it does not show of a binding that takes over would be lost.
	all, err := c.bindings.ListLatest(ctx, "", nil)
	if err != nil {
		return left, err
	}
	others := slices.DeleteFunc(all, func(other *apisv1alpha2.APIBinding) bool {
		return other.Name == binding.Name || other.DeletionTimestamp != nil
	})
	var errs []error
	for _, bound := range binding.Status.BoundResources {
		if len(bound.StorageVersions) == 0 {
			continue // virtual: not stored here
		}
		adopted, err := c.isAdopted(ctx, others, bound)
		if err == nil && !adopted {
			err = c.deleteObjectsOf(ctx, binding, bound, left)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", resourceOf(bound), err))
		}
	}
	return left, errors.Join(errs...)
}

func resourceOf(bound apisv1alpha2.BoundAPIResource) schema.GroupResource {
	return schema.GroupResource{Group: bound.Group, Resource: bound.Resource}
}

// isAdopted tells whether one of the other bindings of the logical cluster will bind the same objects, with the same schema.
func (c *deletionController) isAdopted(ctx context.Context, others []*apisv1alpha2.APIBinding, bound apisv1alpha2.BoundAPIResource) (bool, error) {
	for _, other := range others {
		same, err := c.offersSame(ctx, other, bound)
		if same || err != nil {
			return same, err
		}
	}
	return false, nil
}

// offersSame tells whether the export of a binding offers a resource with the very identity and schema that another binds.
func (c *deletionController) offersSame(ctx context.Context, other *apisv1alpha2.APIBinding, bound apisv1alpha2.BoundAPIResource) (bool, error) {
	reference, err := apiindex.ReferenceOf(other)
	if err != nil {
		return false, nil //nolint:nilerr // what refers to nothing adopts nothing
	}
	export, err := c.cfg.Exports.Resolve(ctx, reference)
	if err != nil {
		return false, client.IgnoreNotFound(err)
	}
	if export.Status.IdentityHash != bound.Schema.IdentityHash {
		return false, nil
	}
	for _, offered := range export.Spec.Resources {
		if offered.Group != bound.Group || offered.Name != bound.Resource {
			continue
		}
		found, err := c.cfg.Exports.GetSchema(ctx, logicalcluster.Of(export), offered.Schema)
		if err != nil {
			return false, client.IgnoreNotFound(err)
		}
		return string(found.UID) == bound.Schema.UID, nil
	}
	return false, nil
}

// deleteObjectsOf deletes objects of one resource, and adds to what is left.
func (c *deletionController) deleteObjectsOf(ctx context.Context, binding *apisv1alpha2.APIBinding, bound apisv1alpha2.BoundAPIResource, left *remaining) error {
	lister, deleter, settled, release, err := c.boundObjects(ctx, bound)
	if apierrors.IsServiceUnavailable(err) {
		return errors.Join(err, c.restoreDefinition(ctx, binding, bound))
	}
	if err != nil {
		return err
	}
	defer release()
	progress, err := drain.Pass(ctx, lister, deleter)
	left.deleted += progress.Deleted
	if progress.Left > 0 {
		left.objects[resourceOf(bound).String()] = progress.Left
	}
	for finalizer, count := range progress.Finalizers {
		left.finalizers[finalizer] += count
	}
	left.requestsInFlight = left.requestsInFlight || !settled // asked before the list, which so holds all that there ever will be
	return err
}

// boundObjects returns the objects of a bound resource, below the API.
func (c *deletionController) boundObjects(ctx context.Context, bound apisv1alpha2.BoundAPIResource) (rest.Lister, rest.GracefulDeleter, bool, func(), error) {
	gr := resourceOf(bound)
	if definitions.IsCompiledIn(c.cfg.Registry, gr, bound.Schema.IdentityHash) {
		own, err := c.cfg.Registry.Get(gr)
		if err != nil {
			return nil, nil, false, nil, err
		}
		deleter, ok := own.Store.(rest.GracefulDeleter)
		if !ok {
			return nil, nil, false, nil, fmt.Errorf("objects cannot be deleted: their registry is %T", own.Store)
		}
		return own.Store, deleter, true, func() {}, nil
	}
	instances, err := c.cfg.Custom.Instances(bindings.WithIdentity(ctx, bound.Schema.IdentityHash), gr)
	if err != nil {
		return nil, nil, false, nil, err
	}
	if instances == nil {
		return nil, nil, false, nil, errors.New("it is not served here now")
	}
	return instances.Store, instances.Deleter, instances.Settled, instances.Release, nil
}

// restoreDefinition makes the definition of a bound resource anew, if it is lost: without it objects cannot be told from one
// another. Bindings that stay have it made in their own pass.
func (c *deletionController) restoreDefinition(ctx context.Context, binding *apisv1alpha2.APIBinding, bound apisv1alpha2.BoundAPIResource) error {
	provider, err := logicalcluster.ParseName(binding.Status.APIExportClusterName)
	if err != nil {
		return err
	}
	schema, err := c.cfg.Exports.GetSchema(ctx, provider, bound.Schema.Name)
	if apierrors.IsNotFound(err) || (err == nil && string(schema.UID) != bound.Schema.UID) {
		return fmt.Errorf("definition and schema of it are gone; an administrator of the shard has to restore definition %q in %s", bound.Schema.UID, logicalcluster.BoundCRDs)
	}
	if err != nil {
		return err
	}
	_, err = c.cfg.Definitions.Ensure(ctx, schema)
	return err
}

// writeStatus stores conditions that have changed.
func (c *deletionController) writeStatus(ctx context.Context, binding, changed *apisv1alpha2.APIBinding) error {
	if equality.Semantic.DeepEqual(binding.Status, changed.Status) {
		return nil
	}
	if err := c.cfg.Clients.Typed.Status().Update(ctx, changed); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the status of APIBinding %q: %w", binding.Name, err)
	}
	return nil
}

// removeFinalizer takes the finalizer off.
func (c *deletionController) removeFinalizer(ctx context.Context, binding *apisv1alpha2.APIBinding) error {
	changed := binding.DeepCopy()
	if len(binding.Finalizers) > 1 { // it stays to be seen
		conditionsv1alpha1.MarkTrue(changed, apisv1alpha2.BindingResourceDeleteSuccess)
		if err := c.writeStatus(ctx, binding, changed); err != nil {
			return err
		}
	}
	controllerutil.RemoveFinalizer(changed, apisv1alpha2.APIBindingFinalizer)
	if err := c.cfg.Clients.Typed.Update(ctx, changed); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("letting APIBinding %q go: %w", binding.Name, err)
	}
	return nil
}
