// Package tenancy contains the plug-ins for writes of workspaces and their types.
package tenancy

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/admission/rules"
)

// workspace protects the owner and the location of a Workspace.
type workspace struct {
	*admission.Handler
	clusters rules.ClusterReader
	mounts   bool
}

// NewWorkspace returns the plug-in tenancy.kcp.io/Workspace.
func NewWorkspace(config rules.Config) admission.Interface {
	return &workspace{
		Handler:  admission.NewHandler(admission.Create, admission.Update),
		clusters: rules.NewClusterReader(config.Registry),
		mounts:   config.Mounts,
	}
}

// Admit sets the annotations that users may not choose.
func (w *workspace) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != rules.Workspaces || a.GetSubresource() != "" {
		return nil
	}
	obj, err := rules.ObjectOf[*tenancyv1alpha1.Workspace](a.GetObject())
	if err != nil {
		return err
	}
	if err := restoreFinalizer(a, obj); err != nil {
		return err
	}
	required, err := w.requiredAnnotations(ctx, a)
	if err != nil || len(required) == 0 {
		return err
	}
	annotations := maps.Clone(obj.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	for key, value := range required {
		if value == "" {
			delete(annotations, key)
		} else {
			annotations[key] = value
		}
	}
	obj.Annotations = annotations
	return nil
}

// Validate refuses changes of the type, of the location by users other than masters, and of the annotations of Admit. Required groups of a new
// workspace that differ from those of the parent are most likely a change of the parent since Admit, so that the request is to be repeated and
// not refused for an annotation that its user did not send. A webhook of the parent that changes them is refused with each attempt.
func (w *workspace) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != rules.Workspaces || a.GetSubresource() != "" {
		return nil
	}
	obj, err := rules.ObjectOf[*tenancyv1alpha1.Workspace](a.GetObject())
	if err != nil {
		return err
	}
	old := &tenancyv1alpha1.Workspace{}
	if a.GetOperation() == admission.Update {
		if old, err = rules.ObjectOf[*tenancyv1alpha1.Workspace](a.GetOldObject()); err != nil {
			return err
		}
		if !equality.Semantic.DeepEqual(old.Spec.Type, obj.Spec.Type) {
			return rules.Forbid(a, "spec.type is immutable")
		}
	}
	if err := w.validateMount(a, old, obj); err != nil {
		return err
	}
	if removesFinalizer(a, old, obj) {
		return rules.Forbid(a, "removing the finalizer %s is forbidden", corev1alpha1.LogicalClusterFinalizer)
	}
	if !rules.IsMaster(a.GetUserInfo()) {
		if obj.Spec.Cluster != old.Spec.Cluster {
			return rules.Forbid(a, "spec.cluster can only be set by system privileged users")
		}
		if obj.Spec.URL != old.Spec.URL {
			return rules.Forbid(a, "spec.URL can only be set by system privileged users")
		}
	}
	required, err := w.requiredAnnotations(ctx, a)
	if err != nil {
		return err
	}
	for key, value := range required {
		if obj.Annotations[key] == value {
			continue
		}
		if isInherited := key == corev1alpha1.RequiredGroupsAnnotationKey && a.GetOperation() == admission.Create; isInherited {
			return rules.Retry(a, "annotation "+key+" of the workspace or its parent")
		}
		return rules.Forbid(a, "annotation %s must be %q", key, value)
	}
	return nil
}

// restoreFinalizer restores the finalizer on a live workspace if a tenant removed it: without it the logical cluster
// would outlive its workspace and could not be deleted through it.
func restoreFinalizer(a admission.Attributes, obj *tenancyv1alpha1.Workspace) error {
	if a.GetOperation() != admission.Update {
		return nil
	}
	old, err := rules.ObjectOf[*tenancyv1alpha1.Workspace](a.GetOldObject())
	if err != nil {
		return err
	}
	if old.DeletionTimestamp == nil && removesFinalizer(a, old, obj) {
		obj.Finalizers = append(slices.Clone(obj.Finalizers), corev1alpha1.LogicalClusterFinalizer)
	}
	return nil
}

// removesFinalizer reports whether a user who does not manage logical clusters removes the finalizer.
func removesFinalizer(a admission.Attributes, old, obj *tenancyv1alpha1.Workspace) bool {
	return slices.Contains(old.Finalizers, corev1alpha1.LogicalClusterFinalizer) &&
		!slices.Contains(obj.Finalizers, corev1alpha1.LogicalClusterFinalizer) &&
		!rules.InAnyGroup(a.GetUserInfo(), rules.LogicalClusterManagers...)
}

// validateMount refuses new mounts if this server does not support proxying to them. Whether a workspace is a mount is
// immutable: one with a logical cluster cannot become a mount, and a mount cannot get a logical cluster.
func (w *workspace) validateMount(a admission.Attributes, old, obj *tenancyv1alpha1.Workspace) error {
	before, mount := old.Spec.Mount, obj.Spec.Mount
	switch {
	case mount != nil && before == nil && !w.mounts:
		return rules.Forbid(a, "spec.mount cannot be set: the feature gate WorkspaceMounts is off")
	case a.GetOperation() == admission.Update && (mount == nil) != (before == nil):
		return rules.Forbid(a, "spec.mount cannot be added or removed")
	case mount == nil || before != nil:
		return nil
	case mount.Reference.APIVersion == "" || mount.Reference.Kind == "" || mount.Reference.Name == "":
		return rules.Forbid(a, "spec.mount.ref must have an apiVersion, a kind and a name")
	case obj.Spec.Type != nil && !rules.IsMaster(a.GetUserInfo()):
		return rules.Forbid(a, "spec.type cannot be set together with spec.mount")
	}
	return nil
}

// placementAnnotations are the annotations in which the scheduler records the location of a workspace. A tenant who
// could write them could take the name of a logical cluster that is reserved for another workspace.
var placementAnnotations = []string{
	tenancyv1alpha1.WorkspaceClusterAnnotationKey,
	corev1alpha1.ShardAnnotationKey,
	tenancyv1alpha1.WorkspaceShardHashAnnotationKey,
}

// requiredAnnotations returns the annotations that the object must have, regardless of what the user sent. An empty
// value means that the annotation must be absent.
func (w *workspace) requiredAnnotations(ctx context.Context, a admission.Attributes) (map[string]string, error) {
	if a.GetOperation() == admission.Update {
		return immutableAnnotations(a)
	}
	return w.initialAnnotations(ctx, a)
}

// initialAnnotations returns those of a new workspace: its owner, and the required groups of its parent.
func (w *workspace) initialAnnotations(ctx context.Context, a admission.Attributes) (map[string]string, error) {
	obj, err := rules.ObjectOf[*tenancyv1alpha1.Workspace](a.GetObject())
	if err != nil {
		return nil, err
	}
	if _, preset := obj.Annotations[corev1alpha1.RequiredGroupsAnnotationKey]; preset && rules.IsMaster(a.GetUserInfo()) {
		return nil, nil
	}
	parent, err := w.clusters.Get(ctx)
	if apierrors.IsNotFound(err) {
		return nil, rules.Forbid(a, "the logical cluster does not exist")
	}
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("reading the logical cluster of workspace %q: %w", obj.Name, err))
	}
	required := map[string]string{corev1alpha1.RequiredGroupsAnnotationKey: parent.Annotations[corev1alpha1.RequiredGroupsAnnotationKey]}
	if rules.IsMaster(a.GetUserInfo()) {
		return required, nil
	}
	for _, key := range placementAnnotations {
		required[key] = ""
	}
	if required[tenancyv1alpha1.ExperimentalWorkspaceOwnerAnnotationKey], err = encodeOwner(a.GetUserInfo()); err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	return required, nil
}

// immutableAnnotations returns the annotations that an update must not change. Users who manage logical clusters may
// change the placement.
func immutableAnnotations(a admission.Attributes) (map[string]string, error) {
	if rules.IsMaster(a.GetUserInfo()) {
		return nil, nil
	}
	old, err := rules.ObjectOf[*tenancyv1alpha1.Workspace](a.GetOldObject())
	if err != nil {
		return nil, err
	}
	immutable := map[string]string{}
	for _, key := range []string{tenancyv1alpha1.ExperimentalWorkspaceOwnerAnnotationKey, corev1alpha1.RequiredGroupsAnnotationKey} {
		immutable[key] = old.Annotations[key]
	}
	if rules.InAnyGroup(a.GetUserInfo(), rules.LogicalClusterManagers...) {
		return immutable, nil
	}
	for _, key := range placementAnnotations {
		immutable[key] = old.Annotations[key]
	}
	return immutable, nil
}

// encodeOwner returns the user in the form of the owner annotation.
func encodeOwner(u user.Info) (string, error) {
	info := authenticationv1.UserInfo{Username: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups()}
	for key, values := range u.GetExtra() {
		if info.Extra == nil {
			info.Extra = map[string]authenticationv1.ExtraValue{}
		}
		info.Extra[key] = values
	}
	text, err := json.Marshal(info)
	if err != nil {
		return "", fmt.Errorf("writing user %q as owner: %w", u.GetName(), err)
	}
	return string(text), nil
}
