package tenancy

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/tenancy/mount"
)

// Requeue delays of mounts. The mounted object may be of any kind that a tenant has defined, so it is polled instead of
// watched.
const (
	mountRefreshInterval = 10 * time.Second
	mountRetryInterval   = 2 * time.Second
)

// mountPhaseReady is the phase of an object whose URL can be used.
const mountPhaseReady = "Ready"

// mountStatus is the status of a mounted object. The zero value stands for no object.
type mountStatus struct {
	found      bool
	phase, url string
}

// mount updates a mounted workspace. It has no logical cluster.
func (c *workspaceController) mount(ctx context.Context, scope *workspaceScope) (controller.Result, error) {
	status, err := c.mountStatus(ctx, scope.workspace.Spec.Mount.Reference)
	if err != nil {
		return controller.Result{}, fmt.Errorf("reading the mounted object of workspace %q: %w", scope.workspace.Name, err)
	}
	setMount(scope.workspace, status)
	result := controller.Result{RequeueAfter: mountRetryInterval}
	if scope.workspace.Status.Phase == corev1alpha1.LogicalClusterPhaseReady {
		result.RequeueAfter = mountRefreshInterval
	}
	return result, c.write(ctx, scope)
}

// mountStatus reads the object from the workspace's own logical cluster.
func (c *workspaceController) mountStatus(ctx context.Context, ref tenancyv1alpha1.ObjectReference) (mountStatus, error) {
	version, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return mountStatus{}, nil // no object can have such a version
	}
	resource, err := c.cfg.Registry.ResolveKind(ctx, version.WithKind(ref.Kind).GroupKind())
	if err != nil || resource == nil {
		return mountStatus{}, err
	}
	namespace := ""
	if resource.Namespaced {
		namespace = ref.Namespace
	}
	ctx = request.WithRequestInfo(ctx, &request.RequestInfo{APIGroup: resource.GVR.Group, Resource: resource.GVR.Resource})
	obj, err := resource.Store.Get(request.WithNamespace(ctx, namespace), ref.Name, &metav1.GetOptions{ResourceVersion: "0"})
	if apierrors.IsNotFound(err) || apierrors.IsBadRequest(err) {
		return mountStatus{}, nil
	}
	if err != nil {
		return mountStatus{}, err
	}
	return readMountStatus(obj)
}

func readMountStatus(obj runtime.Object) (mountStatus, error) {
	var content map[string]any
	if custom, ok := obj.(interface {
		Unstructured() (*unstructured.Unstructured, error)
	}); ok {
		read, err := custom.Unstructured()
		if err != nil {
			return mountStatus{}, err
		}
		content = read.Object
	} else {
		var err error
		if content, err = runtime.DefaultUnstructuredConverter.ToUnstructured(obj); err != nil {
			return mountStatus{}, err
		}
	}
	// A field of another type is treated as absent.
	phase, _, _ := unstructured.NestedString(content, "status", "phase")
	url, _, _ := unstructured.NestedString(content, "status", "URL")
	return mountStatus{found: true, phase: phase, url: url}, nil
}

// setMount sets conditions, URL and phase of a mounted workspace.
func setMount(workspace *tenancyv1alpha1.Workspace, status mountStatus) {
	ref := workspace.Spec.Mount.Reference
	switch _, err := mount.ParseURL(status.url); {
	case !status.found:
		mountNotReady(workspace, tenancyv1alpha1.ReasonMountObjectNotFound, "%s %q does not exist", ref.Kind, ref.Name)
	case status.phase != mountPhaseReady:
		mountNotReady(workspace, tenancyv1alpha1.ReasonMountObjectNotReady, "%s %q is in phase %q", ref.Kind, ref.Name, status.phase)
	case status.url == "":
		mountNotReady(workspace, tenancyv1alpha1.ReasonMountObjectNotReady, "%s %q is ready and has no status.URL yet", ref.Kind, ref.Name)
	case err != nil:
		mountNotReady(workspace, tenancyv1alpha1.ReasonMountObjectNotReady, "status.URL of %s %q cannot be used: %v", ref.Kind, ref.Name, err)
	default:
		conditionsv1alpha1.MarkTrue(workspace, tenancyv1alpha1.WorkspaceMountReady)
		workspace.Spec.URL = status.url
		workspace.Status.Phase = corev1alpha1.LogicalClusterPhaseReady
	}
}

func mountNotReady(workspace *tenancyv1alpha1.Workspace, reason, format string, args ...any) {
	conditionsv1alpha1.MarkFalse(workspace, tenancyv1alpha1.WorkspaceMountReady, reason, conditionsv1alpha1.SeverityError, format, args...)
	workspace.Status.Phase = corev1alpha1.LogicalClusterPhaseUnavailable
}
