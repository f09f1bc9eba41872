package bootstrap

import (
	"context"
	"fmt"
	"maps"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// parallelWrites bounds concurrent requests: enough to hide the latency of the storage.
const parallelWrites = 8

// stage is content of one logical cluster whose objects do not depend on each other.
type stage struct {
	cluster logicalcluster.Name
	objects []client.Object
}

// identity identifies an object in one logical cluster.
type identity struct {
	kind schema.GroupVersionKind
	key  client.ObjectKey
}

// apply lists the existing objects and writes those that differ.
func (s stage) apply(ctx context.Context, c client.Client) error {
	ctx = logicalcluster.With(ctx, s.cluster)
	existing, err := s.listExisting(ctx, c)
	if err != nil {
		return err
	}
	writes, ctx := errgroup.WithContext(ctx)
	writes.SetLimit(parallelWrites)
	for _, desired := range s.objects {
		id, err := identify(c, desired)
		if err != nil {
			return err
		}
		writes.Go(func() error {
			if err := ensure(ctx, c, desired, existing[id]); err != nil {
				return fmt.Errorf("writing %s %s in %s: %w", id.kind.Kind, id.key.Name, s.cluster, err)
			}
			return nil
		})
	}
	return writes.Wait()
}

// listExisting lists every kind of the stage with one request.
func (s stage) listExisting(ctx context.Context, c client.Client) (map[identity]client.Object, error) {
	found := map[identity]client.Object{}
	listed := map[schema.GroupVersionKind]bool{}
	for _, desired := range s.objects {
		id, err := identify(c, desired)
		if err != nil {
			return nil, err
		}
		if listed[id.kind] {
			continue
		}
		listed[id.kind] = true
		if err := collect(ctx, c, id.kind, found); err != nil {
			return nil, fmt.Errorf("listing %s in %s: %w", id.kind.Kind, s.cluster, err)
		}
	}
	return found, nil
}

func collect(ctx context.Context, c client.Client, kind schema.GroupVersionKind, into map[identity]client.Object) error {
	obj, err := c.Scheme().New(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err != nil {
		return err
	}
	list, ok := obj.(client.ObjectList)
	if !ok {
		return fmt.Errorf("%T is no list", obj)
	}
	if err := c.List(ctx, list); err != nil {
		return err
	}
	return meta.EachListItem(list, func(item runtime.Object) error {
		obj, ok := item.(client.Object)
		if !ok {
			return fmt.Errorf("%T is no object", item)
		}
		into[identity{kind, client.ObjectKeyFromObject(obj)}] = obj
		return nil
	})
}

func identify(c client.Client, obj client.Object) (identity, error) {
	kind, err := apiutil.GVKForObject(obj, c.Scheme())
	return identity{kind, client.ObjectKeyFromObject(obj)}, err
}

// ensure creates an object, or updates it if a field that the bootstrap owns differs. Another replica may write it
// first: then the next attempt has nothing to do.
func ensure(ctx context.Context, c client.Client, desired, existing client.Object) error {
	if existing == nil {
		if err := create(ctx, c, desired); !apierrors.IsAlreadyExists(err) {
			return err
		}
		existing = desired.DeepCopyObject().(client.Object)
		if err := c.Get(ctx, client.ObjectKeyFromObject(desired), existing); err != nil {
			return err
		}
	}
	if !isManaged(desired) || !isManaged(existing) {
		return nil
	}
	merged := existing.DeepCopyObject().(client.Object)
	if !overlay(merged, desired) {
		// The role of a binding and the content of a schema are immutable, so the object is replaced.
		if err := c.Delete(ctx, existing, client.Preconditions{UID: new(existing.GetUID())}); client.IgnoreNotFound(err) != nil {
			return err
		}
		return create(ctx, c, desired)
	}
	if !equality.Semantic.DeepEqual(merged, existing) {
		if err := c.Update(ctx, merged); err != nil {
			return err
		}
	}
	return ensureStatus(ctx, c, desired, merged)
}

func create(ctx context.Context, c client.Client, desired client.Object) error {
	created := desired.DeepCopyObject().(client.Object)
	if err := c.Create(ctx, created); err != nil {
		return err
	}
	return ensureStatus(ctx, c, desired, created)
}

// isManaged reports whether an object is updated after its creation.
func isManaged(obj client.Object) bool {
	annotations := obj.GetAnnotations()
	return annotations[CreateOnlyAnnotation] != "true" && annotations[rbacv1.AutoUpdateAnnotationKey] != "false"
}

// overlay sets the fields of an existing object that the bootstrap owns. It returns false if the object must be
// replaced.
func overlay(existing, desired client.Object) bool {
	if shard, ok := existing.(*corev1alpha1.Shard); ok {
		want := desired.(*corev1alpha1.Shard).Spec
		shard.Spec.BaseURL, shard.Spec.ExternalURL, shard.Spec.VirtualWorkspaceURL = want.BaseURL, want.ExternalURL, want.VirtualWorkspaceURL
		shard.SetLabels(desired.GetLabels())
		shard.SetAnnotations(merge(shard.GetAnnotations(), desired.GetAnnotations()))
		return true // limits and other annotations are the administrator's
	}
	existing.SetLabels(merge(existing.GetLabels(), desired.GetLabels()))
	existing.SetAnnotations(merge(existing.GetAnnotations(), desired.GetAnnotations()))
	switch existing := existing.(type) {
	case *rbacv1.ClusterRole:
		want := desired.(*rbacv1.ClusterRole)
		if want.AggregationRule == nil || existing.AggregationRule == nil {
			existing.Rules = want.Rules // the rules of an existing aggregated role are maintained by its controller
		}
		existing.AggregationRule = want.AggregationRule
	case *rbacv1.ClusterRoleBinding:
		want := desired.(*rbacv1.ClusterRoleBinding)
		existing.Subjects = want.Subjects
		return existing.RoleRef == want.RoleRef
	case *apisv1alpha1.APIResourceSchema:
		return sameSchema(existing, desired.(*apisv1alpha1.APIResourceSchema))
	case *apisv1alpha2.APIExport:
		overlayExport(existing, desired.(*apisv1alpha2.APIExport))
	case *tenancyv1alpha1.WorkspaceType:
		existing.Spec = desired.(*tenancyv1alpha1.WorkspaceType).Spec
	}
	return true
}

func merge(existing, desired map[string]string) map[string]string {
	if len(desired) == 0 {
		return existing
	}
	merged := make(map[string]string, len(existing)+len(desired))
	maps.Copy(merged, existing)
	maps.Copy(merged, desired)
	return merged
}

// ensureStatus makes a bootstrapped logical cluster ready: it has no initializers.
func ensureStatus(ctx context.Context, c client.Client, desired, existing client.Object) error {
	want, ok := desired.(*corev1alpha1.LogicalCluster)
	if !ok {
		return nil
	}
	cluster := existing.(*corev1alpha1.LogicalCluster)
	before := cluster.DeepCopy()
	cluster.Status.URL = want.Status.URL
	switch cluster.Status.Phase {
	case "", corev1alpha1.LogicalClusterPhaseScheduling, corev1alpha1.LogicalClusterPhaseInitializing:
		cluster.Status.Phase = want.Status.Phase
	}
	if equality.Semantic.DeepEqual(before.Status, cluster.Status) {
		return nil
	}
	return c.Status().Update(ctx, cluster)
}
