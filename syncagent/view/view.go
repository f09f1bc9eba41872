// Package view lets the agent use the syncer's view of its export (/services/syncer/), if a server has it. The agent describes the
// publications in an annotation of the export, from which shards serve the view, and discovers published resources there. The view serves
// them under the names of the service cluster, without the objects that the filters of the publications exclude. Without a view, or
// without permission, the agent uses the virtual workspace of the export instead.
package view

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/internal/expression"
	"github.com/atoll-dev/atoll/internal/syncerview"
	"github.com/atoll-dev/atoll/internal/workspaces"
	"github.com/atoll-dev/atoll/syncagent/related"
)

// Published is a publication whose objects are synced, with its resource on both sides.
type Published struct {
	Spec               *syncagentv1alpha1.PublishedResourceSpec
	Service, Workspace workspaces.Resource
}

// Describe returns the description of the view for publications. If several have one resource on the service cluster, it contains the
// first of them by the name in workspaces.
func Describe(all []Published) *syncerview.View {
	all = slices.SortedStableFunc(slices.Values(all), func(a, b Published) int {
		return cmp.Or(cmp.Compare(a.Workspace.Group, b.Workspace.Group), cmp.Compare(a.Workspace.Resource, b.Workspace.Resource))
	})
	described := &syncerview.View{}
	names, sources := map[metav1.GroupResource]bool{}, map[schema.GroupResource]bool{}
	for _, p := range all {
		resource := newResource(p)
		if source := resource.Source.GroupResource(); !names[resource.GroupResource] && !sources[source] {
			names[resource.GroupResource], sources[source] = true, true
			described.Resources = append(described.Resources, resource)
		}
	}
	for _, p := range all {
		for _, spec := range p.Spec.Related {
			gvr := related.CopyResource(spec)
			if spec.Origin == syncagentv1alpha1.RelatedResourceOriginKcp {
				gvr = related.OriginResource(spec)
			}
			if name := (metav1.GroupResource{Group: gvr.Group, Resource: gvr.Resource}); !names[name] {
				names[name] = true
				described.Related = append(described.Related, name)
			}
		}
	}
	return described
}

// Revision identifies the description of a publication: only shards that have this description respond to requests with the revision.
func Revision(p Published) string { return newResource(p).Revision }

func newResource(p Published) syncerview.Resource {
	resource := syncerview.Resource{
		GroupResource: metav1.GroupResource{Group: p.Workspace.Group, Resource: p.Workspace.Resource},
		Source:        syncerview.Source{Group: p.Service.Group, Kind: p.Service.Kind, Resource: p.Service.Resource},
		Filter:        p.Spec.Filter,
	}
	if p.Workspace.Version != p.Service.Version {
		resource.Source.Versions = map[string]string{p.Workspace.Version: p.Service.Version}
	}
	text, _ := json.Marshal(resource) // all its fields can be encoded
	resource.Revision = expression.ShortHash(string(text))
	return resource
}

// Publish writes the description of the view to the annotation of an export, if it differs. It ignores an export that does not exist.
func Publish(ctx context.Context, c client.Client, export string, all []Published) error {
	text, err := Describe(all).Encode()
	if err != nil {
		return fmt.Errorf("describing the syncer's view: %w", err)
	}
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(apisv1alpha1.SchemeGroupVersion.WithKind("APIExport"))
	if err := c.Get(ctx, client.ObjectKey{Name: export}, object); err != nil {
		return client.IgnoreNotFound(err)
	}
	if published := object.Annotations[syncerview.Annotation]; published == text || published == "" && len(all) == 0 {
		return nil
	}
	before := object.DeepCopy()
	metav1.SetMetaDataAnnotation(&object.ObjectMeta, syncerview.Annotation, text)
	if err := c.Patch(ctx, object, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("describing the syncer's view in APIExport %s: %w", export, err)
	}
	return nil
}

var (
	// ErrUnavailable means that a server has no view, or that the agent has no permission to use it.
	ErrUnavailable = errors.New("there is no syncer's view")
	// ErrNotServed means that a view does not have a resource, possibly because it does not serve the resource yet.
	ErrNotServed = errors.New("the syncer's view does not serve the resource")
)

// URL returns the URL of the view at an endpoint, and false if the endpoint cannot have a view.
func URL(endpoint string) (string, bool) { return syncerview.URL(endpoint) }

// Find returns a published resource as a view serves it: with the name of the resource on the service cluster, and with the scope in
// workspaces. It returns ErrUnavailable, ErrNotServed, or the error of a server that does not respond.
func Find(view discovery.ServerResourcesInterface, service workspaces.Resource) (workspaces.Resource, error) {
	list, err := view.ServerResourcesForGroupVersion(service.GroupVersion().String())
	switch {
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return workspaces.Resource{}, ErrUnavailable
	case apierrors.IsNotFound(err):
		return workspaces.Resource{}, ErrNotServed
	case err != nil:
		return workspaces.Resource{}, fmt.Errorf("discovering %s in the syncer's view: %w", service.GroupVersion(), err)
	}
	find := func(name string) *metav1.APIResource {
		if at := slices.IndexFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == name }); at >= 0 {
			return &list.APIResources[at]
		}
		return nil
	}
	found := find(service.Resource)
	// A claimed resource with this name is a different one. Published resources support patch, but not create.
	if found == nil || found.Kind != service.Kind || slices.Contains(found.Verbs, "create") || !slices.Contains(found.Verbs, "patch") {
		return workspaces.Resource{}, ErrNotServed
	}
	service.Namespaced, service.HasStatus = found.Namespaced, find(service.Resource+"/status") != nil
	return service, nil
}
