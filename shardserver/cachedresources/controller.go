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

// resyncInterval is how often the selected objects are counted. The status is written only if the count has changed.
const resyncInterval = 5 * time.Second

// withdrawRetryInterval is how often the removal of published objects from an unavailable cache is retried.
const withdrawRetryInterval = 2 * time.Second

var (
	cachedResources = cachev1alpha1.Resource("clustercachedresources")
	secrets         = schema.GroupResource{Resource: "secrets"}
)

// Config configures the controllers.
type Config struct {
	Registry *storage.Registry
	// Clients are loopback clients.
	Clients *loopback.Clients
	Exports Exports
	// ShardName is the name of this shard's Shard object in root.
	ShardName string
	// Publisher publishes objects in the cache; nil without one.
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
		Sources: append(cfg.publisherInputs(), []controller.Source{
			{Resource: cachedResources, MapFunc: controller.RequestForObject},
			{Resource: secrets, MapFunc: c.keysInCluster},
			// Definitions that add or remove the cached resource.
			{Resource: apiextensions.Definitions, MapFunc: c.keysInCluster},
			{Resource: apisv1alpha2.Resource("apibindings"), MapFunc: c.keysInCluster},
		}...),
		Reconcile: c.reconcile,
	}, newSliceController(cfg)}
}

// keysInCluster returns the ClusterCachedResources in the logical cluster of an object.
func (c *resourceController) keysInCluster(event watch.Event) []controller.Request {
	object, err := meta.Accessor(event.Object)
	if err != nil {
		return nil
	}
	return controller.RequestsForObjects(c.reader, logicalcluster.Of(object), nil)
}

// reconcile writes the object (finalizer, secret, annotations) first, then its status and, if it is being deleted,
// finalizes it.
func (c *resourceController) reconcile(ctx context.Context, key controller.Request) (controller.Result, error) {
	stored, err := c.reader.Get(ctx, "", key.Name)
	if apierrors.IsNotFound(err) {
		c.cfg.forget(key)
		return controller.Result{}, nil
	}
	if err != nil {
		return controller.Result{}, err
	}
	cachedResource := stored.DeepCopy()
	resource, reason, message, err := ResolveResource(ctx, c.cfg.Registry, cachedResource)
	if err != nil {
		return controller.Result{}, err
	}
	if cachedResource.DeletionTimestamp != nil {
		return c.finalize(ctx, stored, cachedResource)
	}
	failed := c.ensureDefaults(ctx, cachedResource, resource)
	status := cachev1alpha1.ClusterCachedResource{Status: *stored.Status.DeepCopy()}
	setCondition(&status, cachev1alpha1.ResourceValid, message == "", reason, message)
	if failed == nil {
		failed = c.updateIdentityStatus(ctx, cachedResource, &status)
	}
	if err := c.updateReplicationStatus(ctx, cachedResource, resource, &status); err != nil {
		failed = errors.Join(failed, err)
	}
	if err := c.updateStatus(ctx, stored, cachedResource, status.Status); err != nil {
		failed = errors.Join(failed, err)
	}
	return controller.Result{RequeueAfter: resyncInterval}, failed
}

// ensureDefaults adds the finalizer, the identity secret and the annotations that describe the cached resource.
func (c *resourceController) ensureDefaults(ctx context.Context, cachedResource *cachev1alpha1.ClusterCachedResource, resource *storage.Resource) error {
	metadata, patch := map[string]any{}, map[string]any{}
	if !slices.Contains(cachedResource.Finalizers, cachev1alpha1.ClusterCachedResourceFinalizer) {
		metadata["finalizers"] = append(slices.Clone(cachedResource.Finalizers), cachev1alpha1.ClusterCachedResourceFinalizer)
	}
	if annotations := missingAnnotations(cachedResource, resource); len(annotations) > 0 {
		metadata["annotations"] = annotations
	}
	if identitySecretRef(cachedResource) == nil {
		reference := &corev1.SecretReference{Namespace: apisv1alpha2.IdentitySecretNamespace, Name: cachedResource.Name}
		if err := c.identities.Ensure(ctx, reference); err != nil {
			return err
		}
		patch["spec"] = map[string]any{"identity": map[string]any{"secretRef": reference}}
	}
	if len(metadata) == 0 && len(patch) == 0 {
		return nil
	}
	metadata["uid"], metadata["resourceVersion"] = cachedResource.UID, cachedResource.ResourceVersion
	patch["metadata"] = metadata
	return c.patch(ctx, cachedResource, patch)
}

func (c *resourceController) patch(ctx context.Context, cachedResource *cachev1alpha1.ClusterCachedResource, patch map[string]any) error {
	text, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	if err := c.cfg.Clients.Typed.Patch(ctx, cachedResource, client.RawPatch(types.MergePatchType, text)); err != nil {
		return fmt.Errorf("writing ClusterCachedResource %q: %w", cachedResource.Name, err)
	}
	return nil
}

// missingAnnotations returns the annotations that an object lacks.
func missingAnnotations(cachedResource *cachev1alpha1.ClusterCachedResource, resource *storage.Resource) map[string]string {
	if resource == nil {
		return nil
	}
	missing := map[string]string{}
	for key, value := range map[string]string{
		cachev1alpha1.ResourceKindAnnotationKey:  resource.Kind.Kind,
		cachev1alpha1.ResourceScopeAnnotationKey: "Cluster", // other scopes are not supported
	} {
		if cachedResource.Annotations[key] != value {
			missing[key] = value
		}
	}
	return missing
}

func identitySecretRef(cachedResource *cachev1alpha1.ClusterCachedResource) *corev1.SecretReference {
	if cachedResource.Spec.Identity == nil || cachedResource.Spec.Identity.SecretRef == nil || cachedResource.Spec.Identity.SecretRef.Name == "" {
		return nil
	}
	return cachedResource.Spec.Identity.SecretRef
}

// updateIdentityStatus sets the condition that the secret contains the identity.
func (c *resourceController) updateIdentityStatus(ctx context.Context, cachedResource, status *cachev1alpha1.ClusterCachedResource) error {
	reference := identitySecretRef(cachedResource)
	if reference == nil {
		return nil // the secret is being written
	}
	value, message, err := c.identities.Read(ctx, reference)
	if err != nil {
		return err
	}
	status.Status.IdentityHash, message = identity.Verify(status.Status.IdentityHash, reference, value, message, "ClusterCachedResource")
	setCondition(status, cachev1alpha1.IdentityValid, message == "", cachev1alpha1.ReasonIdentityVerificationFailed, message)
	return nil
}

// updateReplicationStatus publishes and counts the selected objects, and sets the counts and the condition.
func (c *resourceController) updateReplicationStatus(ctx context.Context, cachedResource *cachev1alpha1.ClusterCachedResource, resource *storage.Resource, status *cachev1alpha1.ClusterCachedResource) error {
	ready := resource != nil && conditionsv1alpha1.IsTrue(status, cachev1alpha1.IdentityValid)
	setCondition(status, cachev1alpha1.ReplicationStarted, ready, cachev1alpha1.ReasonNotReady, "waiting for the conditions ResourceValid and IdentityValid to be true")
	status.Status.Phase = cachev1alpha1.ClusterCachedResourcePhaseInitializing
	if !ready {
		return nil
	}
	status.Status.Phase = cachev1alpha1.ClusterCachedResourcePhaseReady
	localCount, err := countObjects(ctx, resource, cachedResource)
	if err != nil {
		return err
	}
	cacheCount, err := c.cfg.publish(ctx, cachedResource, status.Status.IdentityHash, resource, localCount)
	status.Status.ResourceCounts = &cachev1alpha1.ResourceCount{Cache: cacheCount, Local: localCount}
	return err
}

// finalize removes the finalizer when the published objects are deleted from the cache.
func (c *resourceController) finalize(ctx context.Context, stored, cachedResource *cachev1alpha1.ClusterCachedResource) (controller.Result, error) {
	index := slices.Index(cachedResource.Finalizers, cachev1alpha1.ClusterCachedResourceFinalizer)
	if index < 0 {
		return controller.Result{}, nil
	}
	status := cachev1alpha1.ClusterCachedResource{Status: *stored.Status.DeepCopy()}
	status.Status.Phase, status.Status.ResourceCounts = cachev1alpha1.ClusterCachedResourcePhaseDeleting, nil
	setCondition(&status, cachev1alpha1.ReplicationStarted, false, cachev1alpha1.ReasonDeleting, "the object is being deleted")
	if c.cfg.Publisher != nil {
		if err := c.updateStatus(ctx, stored, cachedResource, status.Status); err != nil {
			return controller.Result{}, client.IgnoreNotFound(err)
		}
		if withdrawn, err := c.cfg.Publisher.Withdraw(ctx, cachedResource); err != nil || !withdrawn {
			return controller.Result{RequeueAfter: withdrawRetryInterval}, err
		}
	}
	status.Status.Phase = cachev1alpha1.ClusterCachedResourcePhaseDeleted
	if err := c.updateStatus(ctx, stored, cachedResource, status.Status); err != nil {
		return controller.Result{}, client.IgnoreNotFound(err)
	}
	remaining := slices.Delete(slices.Clone(cachedResource.Finalizers), index, index+1)
	return controller.Result{}, client.IgnoreNotFound(c.patch(ctx, cachedResource, map[string]any{
		"metadata": map[string]any{"uid": cachedResource.UID, "resourceVersion": cachedResource.ResourceVersion, "finalizers": remaining},
	}))
}

// updateStatus writes a status if it differs.
func (c *resourceController) updateStatus(ctx context.Context, stored, cachedResource *cachev1alpha1.ClusterCachedResource, status cachev1alpha1.ClusterCachedResourceStatus) error {
	if equality.Semantic.DeepEqual(stored.Status, status) {
		return nil
	}
	cachedResource.Status = status
	if err := c.cfg.Clients.Typed.Status().Update(ctx, cachedResource); err != nil {
		return fmt.Errorf("writing the status of ClusterCachedResource %q: %w", cachedResource.Name, err)
	}
	return nil
}

// setCondition sets a condition to true, or to false with a reason.
func setCondition(object conditionsv1alpha1.Setter, condition conditionsv1alpha1.Type, isTrue bool, reason, message string) {
	if isTrue {
		conditionsv1alpha1.MarkTrue(object, condition)
		return
	}
	conditionsv1alpha1.MarkFalse(object, condition, reason, conditionsv1alpha1.SeverityError, "%s", message)
}
