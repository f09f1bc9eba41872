package instance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/internal/workspaces"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// pageSize bounds the objects that are in memory during a list. Each can be as large as a server allows.
const pageSize = 50

// errNoEndpoints means that the endpoint slice cannot be read, so that the URLs of workspaces are unknown.
var errNoEndpoints = errors.New("the endpoint slice of the export does not exist yet")

// View reads and removes the instances of all workspaces. It implements template.Instances.
type View struct {
	// Workspace is the client configuration of the provider's workspace; Client is a client of it.
	Workspace *rest.Config
	Client    client.Reader
	// Export is the name of the standard APIExport, and of its endpoint slice.
	Export string
}

// Each implements template.Instances.
func (v *View) Each(ctx context.Context, t *infrastructurev1alpha1.Template, call func(*unstructured.Unstructured) error) error {
	return v.each(ctx, exportsOf(t, v.Export), gvrOf(t), func(_ dynamic.Interface, object *unstructured.Unstructured) error { return call(object) })
}

// Count implements template.Instances.
func (v *View) Count(ctx context.Context, t *infrastructurev1alpha1.Template) (int, error) {
	count := 0
	err := v.Each(ctx, t, func(*unstructured.Unstructured) error {
		count++
		return nil
	})
	return count, err
}

// Provided implements template.Instances.
func (v *View) Provided(ctx context.Context, t *infrastructurev1alpha1.Template) (int, error) {
	count := 0
	err := v.Each(ctx, t, func(object *unstructured.Unstructured) error {
		if slices.Contains(object.GetFinalizers(), Finalizer(t.Spec.InstanceCRD.Group)) {
			count++
		}
		return nil
	})
	return count, err
}

// Bindings implements template.Instances.
func (v *View) Bindings(ctx context.Context, exports []string, call func(*apisv1alpha2.APIBinding) error) error {
	return v.each(ctx, exports, apisv1alpha2.SchemeGroupVersion.WithResource("apibindings"), func(_ dynamic.Interface, object *unstructured.Unstructured) error {
		binding := &apisv1alpha2.APIBinding{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, binding); err != nil {
			return fmt.Errorf("reading an APIBinding: %w", err)
		}
		return call(binding)
	})
}

// Remove implements template.Instances.
func (v *View) Remove(ctx context.Context, t *infrastructurev1alpha1.Template) (int, error) {
	left := 0
	err := v.writeEach(ctx, t, func(ctx context.Context, c dynamic.ResourceInterface, object *unstructured.Unstructured) error {
		left++
		return removeInstance(ctx, c, object)
	})
	return left, err
}

// Abandon implements template.Instances. It deletes an instance before it removes the finalizer, so that no backend can add the finalizer
// again. It leaves finalizers of others in place.
func (v *View) Abandon(ctx context.Context, t *infrastructurev1alpha1.Template) (int, error) {
	left, finalizer := 0, Finalizer(t.Spec.InstanceCRD.Group)
	err := v.writeEach(ctx, t, func(ctx context.Context, c dynamic.ResourceInterface, object *unstructured.Unstructured) error {
		if object.GetDeletionTimestamp() == nil {
			left++
			return removeInstance(ctx, c, object)
		}
		if !slices.Contains(object.GetFinalizers(), finalizer) {
			return nil
		}
		left++
		patch, err := finalizersPatch(object, withoutFinalizer(object, finalizer))
		if err != nil {
			return err
		}
		_, err = c.Patch(ctx, object.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	})
	return left, err
}

// ReportTemplateNotFound implements template.Instances.
func (v *View) ReportTemplateNotFound(ctx context.Context, t *infrastructurev1alpha1.Template) error {
	return v.writeEach(ctx, t, func(ctx context.Context, c dynamic.ResourceInterface, object *unstructured.Unstructured) error {
		status, changed := unknownStatus(object, reasonNotFound, "The platform does not have this kind at the moment; what the instance is made of stays as it is.", time.Now())
		if !changed {
			return nil
		}
		updated := object.DeepCopy()
		updated.Object["status"] = status
		_, err := c.UpdateStatus(ctx, updated, metav1.UpdateOptions{})
		return err
	})
}

// finalizersPatch returns a patch that sets the finalizers, on condition that the object has not changed since it was read.
func finalizersPatch(object *unstructured.Unstructured, finalizers []string) ([]byte, error) {
	return json.Marshal(map[string]any{"metadata": map[string]any{"uid": object.GetUID(), "resourceVersion": object.GetResourceVersion(), "finalizers": finalizers}})
}

// withoutFinalizer returns the finalizers of an object without one.
func withoutFinalizer(object *unstructured.Unstructured, finalizer string) []string {
	return slices.DeleteFunc(slices.Clone(object.GetFinalizers()), func(f string) bool { return f == finalizer })
}

// removeInstance writes the reason to the status, and deletes the instance. A workspace at its limit refuses the larger status; the
// deletion still proceeds.
func removeInstance(ctx context.Context, c dynamic.ResourceInterface, object *unstructured.Unstructured) error {
	if object.GetDeletionTimestamp() != nil {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"phase": infrastructurev1alpha1.PhaseTemplateRemoved, "message": removedMessage}})
	if err != nil {
		return err
	}
	if _, err := c.Patch(ctx, object.GetName(), types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		log.FromContext(ctx).V(1).Info("Failed to report to an instance that its Template is removed", "cluster", logicalcluster.Of(object), "name", object.GetName(), "err", err)
	}
	uid := object.GetUID()
	return c.Delete(ctx, object.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
}

// each calls a function for each object of a resource in the workspaces that have bound one of the exports, with a client of its endpoint.
// It returns an error unless it could read all objects.
func (v *View) each(ctx context.Context, exports []string, gvr schema.GroupVersionResource, call func(dynamic.Interface, *unstructured.Unstructured) error) error {
	for _, export := range exports {
		slice := &apisv1alpha1.APIExportEndpointSlice{}
		if err := v.Client.Get(ctx, client.ObjectKey{Name: export}, slice); err != nil {
			return fmt.Errorf("%w: %w", errNoEndpoints, err)
		}
		for _, url := range workspaces.ListedURLs(slice) {
			if err := v.eachAt(ctx, url, gvr, call); err != nil {
				return fmt.Errorf("at %s: %w", url, err)
			}
		}
	}
	return nil
}

// exportsOf returns the exports that list the kind of a Template, or the standard export if its status names none.
func exportsOf(t *infrastructurev1alpha1.Template, standard string) []string {
	if exports := t.Status.Registered.Exports; len(exports) > 0 {
		return exports
	}
	return []string{standard}
}

func (v *View) eachAt(ctx context.Context, url string, gvr schema.GroupVersionResource, call func(dynamic.Interface, *unstructured.Unstructured) error) error {
	at, err := workspaces.NewEndpoint(v.Workspace, url)
	if err != nil {
		return err
	}
	c, err := at.Dynamic()
	if err != nil {
		return err
	}
	options := metav1.ListOptions{Limit: pageSize}
	for {
		list, err := c.Resource(gvr).List(ctx, options)
		if next, ok := resumeAt(err); ok {
			options.Continue = next
			continue
		}
		if err != nil {
			return err
		}
		for i := range list.Items {
			if err := call(c, &list.Items[i]); err != nil {
				return err
			}
		}
		if options.Continue = list.GetContinue(); options.Continue == "" {
			return nil
		}
	}
}

// resumeAt returns the continue token with which to resume a list whose resource version was compacted: it continues at the same key, at
// the latest resource version.
func resumeAt(err error) (next string, ok bool) {
	var status apierrors.APIStatus
	if !apierrors.IsResourceExpired(err) || !errors.As(err, &status) {
		return "", false
	}
	next = status.Status().Continue
	return next, next != ""
}

// gvrOf returns the resource of the instances, in the version of the Template if it is exported, else in the last exported one.
func gvrOf(t *infrastructurev1alpha1.Template) schema.GroupVersionResource {
	names, version := t.Spec.InstanceCRD, t.Spec.InstanceCRD.Version
	if exported := t.Status.Registered.Versions; len(exported) > 0 && !slices.Contains(exported, version) {
		version = exported[len(exported)-1]
	}
	return schema.GroupVersionResource{Group: names.Group, Version: version, Resource: names.Resource}
}
