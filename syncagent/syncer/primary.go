package syncer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/internal/workspaces"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/syncagent/mutation"
	"github.com/atoll-dev/atoll/syncagent/naming"
	"github.com/atoll-dev/atoll/syncagent/publication"
	"github.com/atoll-dev/atoll/syncagent/state"
)

// matchesFilter reports whether the publication selects the source.
func (re *reconciliation) matchesFilter(ctx context.Context) (bool, error) {
	filter := re.spec().Filter
	if filter == nil {
		return true, nil
	}
	if matches, err := selects(filter.Resource, re.source.GetLabels()); err != nil || !matches {
		return false, err
	}
	if filter.Namespace == nil || re.request.Namespace == "" {
		return true, nil
	}
	namespace, err := re.workspace().get(ctx, workspaces.Namespaces, types.NamespacedName{Name: re.request.Namespace})
	if err != nil || namespace == nil {
		return false, err
	}
	return selects(filter.Namespace, namespace.GetLabels())
}

func selects(selector *metav1.LabelSelector, values map[string]string) (bool, error) {
	if selector == nil {
		return true, nil
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return false, fmt.Errorf("the filter is not valid: %w", err)
	}
	return s.Matches(labels.Set(values)), nil
}

// readPath reads the path of the workspace if the publication enables workspace paths.
func (re *reconciliation) readPath(ctx context.Context) error {
	if !re.spec().EnableWorkspacePaths {
		return nil
	}
	cluster, err := re.workspace().get(ctx, workspaces.LogicalClusters, types.NamespacedName{Name: corev1alpha1.LogicalClusterName})
	if err != nil {
		return err
	}
	if cluster != nil {
		re.path = cluster.GetAnnotations()[logicalcluster.PathAnnotationKey]
	}
	if re.path == "" {
		return fmt.Errorf("logical cluster %s has no path", re.request.Cluster)
	}
	return nil
}

func (re *reconciliation) loadState(ctx context.Context) (err error) {
	re.state, err = re.Syncer.state.Load(ctx, state.Primary{
		Cluster: re.request.Cluster, GroupVersionKind: re.config.WorkspaceResource.GroupVersionKind, NamespacedName: re.request.NamespacedName,
	}, re.request.Source().Labels())
	return err
}

func (re *reconciliation) saveState(ctx context.Context) error {
	return re.Syncer.state.Save(ctx, re.state)
}

// primaryKey is the key of the content of the primary object in its state.
func (re *reconciliation) primaryKey() string {
	return state.Key(re.request.Cluster.String(), re.request.Namespace, re.request.Name)
}

// findCopy returns the copy of the source, or nil.
func (re *reconciliation) findCopy(ctx context.Context) (*unstructured.Unstructured, error) {
	found, err := re.config.Copies.Find(ctx, re.request.Source())
	if err != nil {
		return nil, fmt.Errorf("finding the copy: %w", err)
	}
	if own, err := re.theCopy(found); err != nil {
		return nil, err
	} else if own != nil {
		return re.fresh(ctx, own)
	}
	key, recorded := re.state.Copy()
	if !recorded {
		return nil, nil
	}
	copied, err := re.service().get(ctx, re.config.ServiceResource, key) // a cache may not have it yet
	if err != nil || copied == nil {
		return nil, err
	}
	switch claimOf(copied, re.identification()) {
	case claimOwn:
		return copied, nil
	case claimNone:
		if re.state.CopyUID() == copied.GetUID() { // the copy has lost its labels; without a recorded UID, it is adopted
			return copied, nil
		}
	}
	return nil, nil
}

// fresh returns the current version of a copy where a cached one is not sufficient: related objects are located by its fields, or it is
// deleted.
func (re *reconciliation) fresh(ctx context.Context, copied *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if len(re.config.Related) == 0 && re.source.GetDeletionTimestamp() == nil {
		return copied, nil
	}
	current, err := re.service().get(ctx, re.config.ServiceResource, client.ObjectKeyFromObject(copied))
	if err != nil || current == nil || current.GetUID() != copied.GetUID() || claimOf(current, re.identification()) == claimOther {
		return nil, err // another object has its name
	}
	return current, nil
}

func (re *reconciliation) ensureFinalizer(ctx context.Context) error {
	finalizers := re.source.GetFinalizers()
	if slices.Contains(finalizers, publication.Finalizer) {
		return nil
	}
	if err := re.workspace().setFinalizers(ctx, re.source, append(slices.Clone(finalizers), publication.Finalizer)); err != nil {
		return err
	}
	re.record(ctx, ReasonAccepted)
	return nil
}

// desired is the desired state of a copy.
type desired struct {
	key types.NamespacedName
	// mutated is the source after mutation.
	mutated *unstructured.Unstructured
	content map[string]any
	// identification are labels and annotations that are not part of the content.
	identification metadata
}

// desiredCopy computes the desired state of the source's copy. found is the existing copy, or nil.
func (re *reconciliation) desiredCopy(found *unstructured.Unstructured) (desired, error) {
	result := desired{mutated: re.source.DeepCopy(), identification: re.identification()}
	if found != nil {
		result.key = client.ObjectKeyFromObject(found)
	} else {
		var err error
		if result.key, err = re.nameCopy(); err != nil {
			return desired{}, err
		}
		found = newObject(re.config.ServiceResource, result.key, contentOf(re.source), result.identification)
	}
	if err := mutation.Apply(re.mutation().Spec, result.mutated, found); err != nil {
		return desired{}, fmt.Errorf("mutating the object: %w", err)
	}
	result.content = contentOf(result.mutated)
	return result, nil
}

func (re *reconciliation) mutation() syncagentv1alpha1.ResourceMutationSpec {
	if m := re.spec().Mutation; m != nil {
		return *m
	}
	return syncagentv1alpha1.ResourceMutationSpec{}
}

// nameCopy returns the namespace and name of a new copy.
func (re *reconciliation) nameCopy() (types.NamespacedName, error) {
	key, err := naming.Key(re.spec().Naming, naming.Input{
		Object: re.source, ClusterName: re.request.Cluster.String(), ClusterPath: re.path, ClusterScoped: !re.config.ServiceResource.Namespaced,
	})
	if err != nil {
		return types.NamespacedName{}, fmt.Errorf("naming the copy: %w", err)
	}
	return key, re.guardPrimary(key)
}

// newObject returns an object that does not exist yet.
func newObject(resource workspaces.Resource, key types.NamespacedName, content map[string]any, identification metadata) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetGroupVersionKind(resource.GroupVersionKind)
	object.SetNamespace(key.Namespace)
	object.SetName(key.Name)
	return overwrite(object, content, identification)
}

// create creates the copy, or adopts an existing object with its name. wait means that the existing object, or the namespace, is being
// deleted.
func (re *reconciliation) create(ctx context.Context, d desired) (created *unstructured.Unstructured, wait bool, err error) {
	key, err := re.recordedKey(ctx, d.key)
	if err != nil {
		return nil, false, err
	}
	if wait, err := re.service().ensureNamespace(ctx, key.Namespace); err != nil || wait {
		return nil, wait, err
	}
	if err := re.removeContent(ctx, re.primaryKey()); err != nil {
		return nil, false, err
	}
	object := newObject(re.config.ServiceResource, key, d.content, d.identification)
	err = re.config.Service.Create(ctx, object)
	switch {
	case apierrors.IsAlreadyExists(err):
		return re.adopt(ctx, key, d)
	case isNamespaceTerminating(err):
		return nil, true, nil
	case err != nil:
		return nil, false, fmt.Errorf("creating %s: %w", re.service().describe(re.config.ServiceResource, key), err)
	}
	re.record(ctx, ReasonPlaced)
	if err := re.recordContent(ctx, object, d.content); err != nil {
		return nil, false, err
	}
	return object, false, nil
}

// recordedKey returns the recorded key of an earlier reconciliation if its object exists and is not the copy of another source, and the given key
// otherwise. It removes a record with another key before the copy is created: a reconciliation without a record finds the copy with a list request.
func (re *reconciliation) recordedKey(ctx context.Context, key types.NamespacedName) (types.NamespacedName, error) {
	recorded, found := re.state.Copy()
	if !found || recorded == key {
		return key, nil
	}
	existing, err := re.service().get(ctx, re.config.ServiceResource, recorded)
	if err != nil {
		return key, err
	}
	if existing != nil && claimOf(existing, re.identification()) != claimOther {
		return recorded, nil
	}
	re.state.RemoveCopy()
	return key, re.saveState(ctx)
}

// adopt makes an existing object the copy, unless it is the copy of another source. It does not change the content of the object: it
// records the current content of the source as already written, so that later passes write only later changes. It writes the record
// before the labels, because the next reconciliation finds the copy by its labels.
func (re *reconciliation) adopt(ctx context.Context, key types.NamespacedName, d desired) (adopted *unstructured.Unstructured, wait bool, err error) {
	service := re.service()
	existing, err := service.get(ctx, re.config.ServiceResource, key)
	switch {
	case err != nil:
		return nil, false, err
	case existing == nil || existing.GetDeletionTimestamp() != nil:
		return nil, true, nil
	}
	switch claimOf(existing, d.identification) {
	case claimOwn:
		return existing, false, nil
	case claimOther:
		return nil, false, &OwnedError{service.describeObject(existing), "is the copy of another object, or of another agent"}
	}
	if err := re.confineAdoption(existing); err != nil {
		return nil, false, err
	}
	re.state.SetCopy(key)
	re.state.SetCopyUID("") // without the labels it is not a copy yet
	if err := re.state.SetLast(re.primaryKey(), d.content); err != nil {
		return nil, false, err
	}
	if err := re.saveState(ctx); err != nil {
		return nil, false, err
	}
	patch := map[string]any{"metadata": map[string]any{"resourceVersion": existing.GetResourceVersion()}}
	addMetadata(patch, d.identification.missing(existing.GetLabels(), existing.GetAnnotations()))
	if err := service.patch(ctx, existing, patch); err != nil {
		return nil, false, err
	}
	re.record(ctx, ReasonPlaced)
	return existing, false, nil
}

// removeContent removes the recorded content of a previous copy before another copy is created: if the reconciliation ends before it records the
// content of the new copy, the state must not contain that of the previous one.
func (re *reconciliation) removeContent(ctx context.Context, key string) error {
	if !re.state.Has(key) {
		return nil
	}
	re.state.Forget(key)
	return re.saveState(ctx)
}

// recordContent records the content that the agent has written to the copy.
func (re *reconciliation) recordContent(ctx context.Context, copied *unstructured.Unstructured, content map[string]any) error {
	re.state.SetCopy(client.ObjectKeyFromObject(copied))
	re.state.SetCopyUID(copied.GetUID())
	if err := re.state.SetLast(re.primaryKey(), content); err != nil {
		return err
	}
	return re.saveState(ctx)
}

// syncContent writes the differences between the source and its copy.
func (re *reconciliation) syncContent(ctx context.Context, copied *unstructured.Unstructured, d desired) (*unstructured.Unstructured, error) {
	result, written, err := re.write(ctx, re.service(), re.primaryKey(), copied, re.config.ServiceResource, d)
	if err != nil {
		return nil, err
	}
	if written {
		re.record(ctx, ReasonSynced)
	}
	return result, re.recordContent(ctx, result, d.content)
}

// syncStatus copies the status of the copy to the source.
func (re *reconciliation) syncStatus(ctx context.Context, copied, mutated *unstructured.Unstructured) error {
	if !re.config.WorkspaceResource.HasStatus || !re.config.ServiceResource.HasStatus {
		return nil
	}
	from := copied.DeepCopy()
	if err := mutation.Apply(re.mutation().Status, from, mutated); err != nil {
		return fmt.Errorf("mutating the status: %w", err)
	}
	written, err := re.writeStatus(ctx, re.workspace(), re.source, from.Object["status"], re.primaryKey()+statusKeySuffix)
	if written {
		re.record(ctx, ReasonStatusSynced)
	}
	return errors.Join(err, re.saveState(ctx))
}
