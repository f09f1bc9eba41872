package instances

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/internal/endpoints"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// pageSize bounds the objects that are in memory during a list.
const pageSize = 500

// errNoEndpoints means that the server has not said yet where workspaces are.
var errNoEndpoints = errors.New("the endpoint slice of the export does not exist yet")

// View reads and removes the instances of all workspaces. It implements template.Instances.
type View struct {
	// Workspace is the client configuration of the workspace of the provider, Client a client of it.
	Workspace *rest.Config
	Client    client.Reader
	// Export is the name of the APIExport, and of its endpoint slice.
	Export string
}

// Count implements template.Instances.
func (v *View) Count(ctx context.Context, t *infrastructurev1alpha1.Template) (int, error) {
	count := 0
	err := v.each(ctx, t, func(*endpoints.Endpoint, *unstructured.Unstructured) error {
		count++
		return nil
	})
	return count, err
}

// Provided implements template.Instances.
func (v *View) Provided(ctx context.Context, t *infrastructurev1alpha1.Template) (int, error) {
	count := 0
	err := v.each(ctx, t, func(_ *endpoints.Endpoint, object *unstructured.Unstructured) error {
		if slices.Contains(object.GetFinalizers(), Finalizer(t.Spec.InstanceCRD.Group)) {
			count++
		}
		return nil
	})
	return count, err
}

// Remove implements template.Instances.
func (v *View) Remove(ctx context.Context, t *infrastructurev1alpha1.Template) (int, error) {
	left := 0
	err := v.each(ctx, t, func(at *endpoints.Endpoint, object *unstructured.Unstructured) error {
		left++
		return removeInstance(ctx, at, gvrOf(t), object)
	})
	return left, err
}

// removeInstance says why, and deletes.
func removeInstance(ctx context.Context, at *endpoints.Endpoint, gvr schema.GroupVersionResource, object *unstructured.Unstructured) error {
	if object.GetDeletionTimestamp() != nil {
		return nil
	}
	c, err := at.Dynamic()
	if err != nil {
		return err
	}
	ctx = logicalcluster.With(ctx, logicalcluster.Of(object))
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"phase": infrastructurev1alpha1.PhaseTemplateRemoved, "message": "This kind is no longer offered; the instance is being removed."}})
	if err != nil {
		return err
	}
	_, err = c.Resource(gvr).Patch(ctx, object.GetName(), types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if err == nil {
		uid := object.GetUID()
		err = c.Resource(gvr).Delete(ctx, object.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// each calls a function for each instance of a Template, and fails unless all workspaces could be read.
func (v *View) each(ctx context.Context, t *infrastructurev1alpha1.Template, call func(*endpoints.Endpoint, *unstructured.Unstructured) error) error {
	slice := &apisv1alpha1.APIExportEndpointSlice{}
	if err := v.Client.Get(ctx, client.ObjectKey{Name: v.Export}, slice); err != nil {
		return fmt.Errorf("%w: %w", errNoEndpoints, err)
	}
	for _, endpoint := range slice.Status.APIExportEndpoints {
		if err := v.eachAt(ctx, endpoint.URL, gvrOf(t), call); err != nil {
			return fmt.Errorf("at %s: %w", endpoint.URL, err)
		}
	}
	return nil
}

func (v *View) eachAt(ctx context.Context, url string, gvr schema.GroupVersionResource, call func(*endpoints.Endpoint, *unstructured.Unstructured) error) error {
	at, err := endpointAt(v.Workspace, url)
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
		if err != nil {
			return err
		}
		for i := range list.Items {
			if err := call(at, &list.Items[i]); err != nil {
				return err
			}
		}
		if options.Continue = list.GetContinue(); options.Continue == "" {
			return nil
		}
	}
}

// gvrOf returns the resource of the instances, in the version of the Template if that is exported, else in the one exported before.
func gvrOf(t *infrastructurev1alpha1.Template) schema.GroupVersionResource {
	names, version := t.Spec.InstanceCRD, t.Spec.InstanceCRD.Version
	if exported := t.Status.Registered.Versions; len(exported) > 0 && !slices.Contains(exported, version) {
		version = exported[len(exported)-1]
	}
	return schema.GroupVersionResource{Group: names.Group, Version: version, Resource: names.Resource}
}
