package cachedresources

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	cachev1alpha1 "github.com/atoll-dev/atoll/api/cache/v1alpha1"
	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiexport/identity"
	"github.com/atoll-dev/atoll/shardserver/apis/apiextensions"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/loopback"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// countAgain is how often the objects that are offered are counted. A number that is a few seconds old does no harm, and
// nothing is written while it stays.
const countAgain = 5 * time.Second

// withdrawAgain is how often it is tried again to remove copies from a cache that is away.
const withdrawAgain = 2 * time.Second

var (
	cachedResources = cachev1alpha1.Resource("clustercachedresources")
	secrets         = schema.GroupResource{Resource: "secrets"}
)

// Config is what the controllers need.
type Config struct {
	Registry *storage.Registry
	// Clients write through the shard's own API.
	Clients *loopback.Clients
	Exports Exports
	// ShardName is the name of this shard's Shard object in root.
	ShardName string
	// Publisher shows objects to other shards; nil without a cache.
	Publisher Publisher
}

type resourceController struct {
	cfg        Config
	reader     *storage.Reader[*cachev1alpha1.ClusterCachedResource]
	identities *identity.SecretStore
}

// Controllers returns the controllers of this package.
func Controllers(cfg Config) []controller.Controller {
	c := &resourceController{
		cfg:        cfg,
		reader:     storage.NewReader[*cachev1alpha1.ClusterCachedResource](cfg.Registry, cachedResources),
		identities: identity.NewSecretStore(cfg.Registry, cfg.Clients.Typed),
	}
	return []controller.Controller{{
		Name: "clustercachedresource",
		Inputs: append(cfg.published(), []controller.Input{
			{Resource: cachedResources, Keys: controller.ObjectKey},
			{Resource: secrets, Keys: c.besides},
			// What brings the resource that is offered, or takes it away.
			{Resource: apiextensions.Definitions, Keys: c.besides},
			{Resource: apisv1alpha2.Resource("apibindings"), Keys: c.besides},
		}...),
		Reconcile: c.reconcile,
	}, sliceControllerOf(cfg)}
}

// besides returns the ClusterCachedResources in the logical cluster of an object.
func (c *resourceController) besides(event watch.Event) []controller.Key {
	object, err := meta.Accessor(event.Object)
	if err != nil {
		return nil
	}
	all, err := c.reader.List(logicalcluster.With(context.Background(), logicalcluster.Of(object)), "", nil)
	if err != nil {
		return nil // not installed yet: its own events will come
	}
	keys := make([]controller.Key, 0, len(all))
	for _, offer := range all {
		keys = append(keys, controller.Key{Cluster: logicalcluster.Of(offer), Name: offer.Name})
	}
	return keys
}

// reconcile is a ladder: what stands in the object itself (finalizer, secret, annotations), then its status, then, if it
// is being deleted, its end.
func (c *resourceController) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	stored, err := c.reader.Get(ctx, "", key.Name)
	if apierrors.IsNotFound(err) {
		c.cfg.forget(key)
		return controller.Result{}, nil
	}
	if err != nil {
		return controller.Result{}, err
	}
	offer := stored.DeepCopy()
	resource, reason, fault, err := Resource(ctx, c.cfg.Registry, offer)
	if err != nil {
		return controller.Result{}, err
	}
	if offer.DeletionTimestamp != nil {
		return c.end(ctx, stored, offer)
	}
	failed := c.settle(ctx, offer, resource)
	status := cachev1alpha1.ClusterCachedResource{Status: *stored.Status.DeepCopy()}
	mark(&status, cachev1alpha1.ResourceValid, fault == "", reason, fault)
	if failed == nil {
		failed = c.identify(ctx, offer, &status)
	}
	if err := c.measure(ctx, offer, resource, &status); err != nil {
		failed = errors.Join(failed, err)
	}
	if err := c.write(ctx, stored, offer, status.Status); err != nil {
		failed = errors.Join(failed, err)
	}
	return controller.Result{RequeueAfter: countAgain}, failed
}

// settle gives an object its finalizer, the secret of its identity and the annotations that describe what it offers.
func (c *resourceController) settle(ctx context.Context, offer *cachev1alpha1.ClusterCachedResource, resource *storage.Resource) error {
	metadata, patch := map[string]any{}, map[string]any{}
	if !slices.Contains(offer.Finalizers, cachev1alpha1.ClusterCachedResourceFinalizer) {
		metadata["finalizers"] = append(slices.Clone(offer.Finalizers), cachev1alpha1.ClusterCachedResourceFinalizer)
	}
	if annotations := described(offer, resource); len(annotations) > 0 {
		metadata["annotations"] = annotations
	}
	if secretOf(offer) == nil {
		reference := &corev1.SecretReference{Namespace: apisv1alpha2.IdentitySecretNamespace, Name: offer.Name}
		if err := c.identities.Ensure(ctx, reference); err != nil {
			return err
		}
		patch["spec"] = map[string]any{"identity": map[string]any{"secretRef": reference}}
	}
	if len(metadata) == 0 && len(patch) == 0 {
		return nil
	}
	metadata["uid"], metadata["resourceVersion"] = offer.UID, offer.ResourceVersion
	patch["metadata"] = metadata
	return c.patch(ctx, offer, patch)
}

func (c *resourceController) patch(ctx context.Context, offer *cachev1alpha1.ClusterCachedResource, patch map[string]any) error {
	text, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	if err := c.cfg.Clients.Typed.Patch(ctx, offer, client.RawPatch(types.MergePatchType, text)); err != nil {
		return fmt.Errorf("writing ClusterCachedResource %q: %w", offer.Name, err)
	}
	return nil
}

// described returns the annotations that an object lacks.
func described(offer *cachev1alpha1.ClusterCachedResource, resource *storage.Resource) map[string]string {
	if resource == nil {
		return nil
	}
	missing := map[string]string{}
	for key, value := range map[string]string{
		cachev1alpha1.ResourceKindAnnotationKey:  resource.Kind.Kind,
		cachev1alpha1.ResourceScopeAnnotationKey: "Cluster", // nothing else can be offered
	} {
		if offer.Annotations[key] != value {
			missing[key] = value
		}
	}
	return missing
}

func secretOf(offer *cachev1alpha1.ClusterCachedResource) *corev1.SecretReference {
	if offer.Spec.Identity == nil || offer.Spec.Identity.SecretRef == nil || offer.Spec.Identity.SecretRef.Name == "" {
		return nil
	}
	return offer.Spec.Identity.SecretRef
}

// identify says in the status whether the secret holds the identity.
func (c *resourceController) identify(ctx context.Context, offer, status *cachev1alpha1.ClusterCachedResource) error {
	reference := secretOf(offer)
	if reference == nil {
		return nil // it is being written
	}
	value, fault, err := c.identities.Read(ctx, reference)
	if err != nil {
		return err
	}
	status.Status.IdentityHash, fault = identity.Verify(status.Status.IdentityHash, reference, value, fault, "ClusterCachedResource")
	mark(status, cachev1alpha1.IdentityValid, fault == "", cachev1alpha1.ReasonIdentityVerificationFailed, fault)
	return nil
}

// measure counts what is offered, and says how far it is.
func (c *resourceController) measure(ctx context.Context, offer *cachev1alpha1.ClusterCachedResource, resource *storage.Resource, status *cachev1alpha1.ClusterCachedResource) error {
	ready := resource != nil && conditionsv1alpha1.IsTrue(status, cachev1alpha1.IdentityValid)
	mark(status, cachev1alpha1.ReplicationStarted, ready, cachev1alpha1.ReasonNotReady, "the conditions ResourceValid and IdentityValid have to be true before; see there")
	status.Status.Phase = cachev1alpha1.ClusterCachedResourcePhaseInitializing
	if !ready {
		return nil
	}
	status.Status.Phase = cachev1alpha1.ClusterCachedResourcePhaseReady
	number, err := count(ctx, resource, offer)
	if err != nil {
		return err
	}
	copies, err := c.cfg.publish(ctx, offer, status.Status.IdentityHash, resource, number)
	status.Status.ResourceCounts = &cachev1alpha1.ResourceCount{Cache: copies, Local: number}
	return err
}

// end lets an object go, when its copies are gone from the cache.
func (c *resourceController) end(ctx context.Context, stored, offer *cachev1alpha1.ClusterCachedResource) (controller.Result, error) {
	at := slices.Index(offer.Finalizers, cachev1alpha1.ClusterCachedResourceFinalizer)
	if at < 0 {
		return controller.Result{}, nil
	}
	status := cachev1alpha1.ClusterCachedResource{Status: *stored.Status.DeepCopy()}
	status.Status.Phase, status.Status.ResourceCounts = cachev1alpha1.ClusterCachedResourcePhaseDeleting, nil
	mark(&status, cachev1alpha1.ReplicationStarted, false, cachev1alpha1.ReasonDeleting, "it is being deleted")
	if c.cfg.Publisher != nil {
		if err := c.write(ctx, stored, offer, status.Status); err != nil {
			return controller.Result{}, client.IgnoreNotFound(err)
		}
		if withdrawn, err := c.cfg.Publisher.Withdraw(ctx, offer); err != nil || !withdrawn {
			return controller.Result{RequeueAfter: withdrawAgain}, err
		}
	}
	status.Status.Phase = cachev1alpha1.ClusterCachedResourcePhaseDeleted
	if err := c.write(ctx, stored, offer, status.Status); err != nil {
		return controller.Result{}, client.IgnoreNotFound(err)
	}
	rest := slices.Delete(slices.Clone(offer.Finalizers), at, at+1)
	return controller.Result{}, client.IgnoreNotFound(c.patch(ctx, offer, map[string]any{
		"metadata": map[string]any{"uid": offer.UID, "resourceVersion": offer.ResourceVersion, "finalizers": rest},
	}))
}

// write stores a status if it is another one.
func (c *resourceController) write(ctx context.Context, stored, offer *cachev1alpha1.ClusterCachedResource, status cachev1alpha1.ClusterCachedResourceStatus) error {
	if equality.Semantic.DeepEqual(stored.Status, status) {
		return nil
	}
	offer.Status = status
	if err := c.cfg.Clients.Typed.Status().Update(ctx, offer); err != nil {
		return fmt.Errorf("writing the status of ClusterCachedResource %q: %w", offer.Name, err)
	}
	return nil
}

// mark sets a condition to true, or to false for a reason.
func mark(object conditionsv1alpha1.Setter, condition conditionsv1alpha1.Type, holds bool, reason, fault string) {
	if holds {
		conditionsv1alpha1.MarkTrue(object, condition)
		return
	}
	conditionsv1alpha1.MarkFalse(object, condition, reason, conditionsv1alpha1.SeverityError, "%s", fault)
}
