package syncer

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/internal/syncerview"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
	"github.com/atoll-dev/atoll/shardserver/discovery"
	"github.com/atoll-dev/atoll/shardserver/discovery/documents"
	"github.com/atoll-dev/atoll/shardserver/virtual"
	"github.com/atoll-dev/atoll/shardserver/virtual/apiexport"
)

var (
	namespaces = schema.GroupResource{Resource: "namespaces"}

	// objectVerbs are the verbs of published resources, statusVerbs those of their status.
	objectVerbs = []string{"get", "list", "patch", "update", "watch"}
	statusVerbs = []string{"get", "patch", "update"}
)

// publisher resolves what exports publish in their annotation.
type publisher struct {
	exports apiexport.Exports
	// parsed are the valid annotations, by hash.
	parsed *documents.Cache[[sha256.Size]byte, *syncerview.View]
}

var _ apiexport.View = &publisher{}

// published is a published resource of an export.
type published struct {
	*syncerview.Resource
	export bindings.ExportKey
	// namespacesClaim is the claim of the export on namespaces; nil if it has none.
	namespacesClaim *apisv1alpha2.PermissionClaim
	// schema is the name of its APIResourceSchema.
	schema string
}

// name returns the resource in logical clusters.
func (p *published) name() schema.GroupResource {
	return schema.GroupResource{Group: p.Group, Resource: p.Resource.Resource}
}

// get returns the description of an export's view. It is empty where the annotation is missing or invalid.
func (p *publisher) get(ctx context.Context, export *apisv1alpha2.APIExport) (*syncerview.View, error) {
	text := export.Annotations[syncerview.Annotation]
	if text == "" {
		return &syncerview.View{}, nil
	}
	invalid := error(nil)
	view, err := p.parsed.Get(ctx, sha256.Sum256([]byte(text)), func() (*syncerview.View, int64, error) {
		var view *syncerview.View
		view, invalid = syncerview.Parse(text)
		return view, int64(5 * len(text)), invalid // estimate of the decoded size
	})
	if invalid != nil {
		klog.FromContext(ctx).V(2).Info("Ignoring the description of a syncer's view", "export", export.Name, "cluster", logicalcluster.Of(export), "err", invalid)
		return &syncerview.View{}, nil
	}
	return view, err
}

// find returns the published resource with a name of the service cluster, or nil. hidden means that nothing else may be
// served under the name: it is that of a published resource in logical clusters.
func (p *publisher) find(ctx context.Context, target virtual.Request, source schema.GroupResource) (found *published, hidden bool, err error) {
	cluster, err := logicalcluster.ParseName(target.Owner[0])
	if err != nil {
		return nil, false, err // resolve has validated it
	}
	export, err := p.exports.Get(ctx, bindings.ExportKey{Cluster: cluster, Name: target.Owner[1]})
	if apierrors.IsNotFound(err) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("reading APIExport %q of %q: %w", target.Owner[1], cluster, err)
	}
	view, err := p.get(ctx, export)
	if err != nil {
		return nil, false, err
	}
	for i := range view.Resources {
		resource := &view.Resources[i]
		if resource.Source.GroupResource() == source && isOffered(export, view, resource) {
			return newPublished(export, resource), false, nil
		}
		hidden = hidden || groupResource(resource.GroupResource) == source
	}
	return nil, hidden && findClaim(export, source) == nil, nil
}

func newPublished(export *apisv1alpha2.APIExport, resource *syncerview.Resource) *published {
	found := &published{Resource: resource, export: apiindex.ExportKeyOf(export), namespacesClaim: findClaim(export, namespaces)}
	for i := range export.Spec.Resources {
		if entry := &export.Spec.Resources[i]; entry.Group == resource.Group && entry.Name == resource.GroupResource.Resource {
			found.schema = entry.Schema
		}
	}
	return found
}

// isOffered reports whether a published resource can be served: its name on the service cluster is not that of a related
// resource, and the export may read the namespaces that its filter selects.
func isOffered(export *apisv1alpha2.APIExport, view *syncerview.View, resource *syncerview.Resource) bool {
	source := resource.Source.GroupResource()
	switch {
	case findClaim(export, source) != nil:
		return false
	case slices.ContainsFunc(view.Related, func(related metav1.GroupResource) bool { return groupResource(related) == source }):
		return false
	}
	return resource.Namespaces == nil || findClaim(export, namespaces) != nil
}

func findClaim(export *apisv1alpha2.APIExport, gr schema.GroupResource) *apisv1alpha2.PermissionClaim {
	for i := range export.Spec.PermissionClaims {
		claim := &export.Spec.PermissionClaims[i]
		if apiindex.NormalizeResource(schema.GroupResource{Group: claim.Group, Resource: claim.Resource}) == apiindex.NormalizeResource(gr) {
			return claim
		}
	}
	return nil
}

func groupResource(gr metav1.GroupResource) schema.GroupResource {
	return schema.GroupResource{Group: gr.Group, Resource: gr.Resource}
}

// Verb implements apiexport.View.
func (*publisher) Verb() string { return syncerview.Verb }

// Offer implements apiexport.View: the published and related resources of the export, and claimed ones.
func (p *publisher) Offer(ctx context.Context, export *apisv1alpha2.APIExport, gr schema.GroupResource, own, claimed bool) (entry string, offered bool, err error) {
	if !own {
		return "", claimed, nil
	}
	view, err := p.get(ctx, export)
	if err != nil {
		return "", false, err
	}
	if slices.ContainsFunc(view.Related, func(related metav1.GroupResource) bool { return groupResource(related) == gr }) {
		return "", true, nil
	}
	resource := findByName(view, gr)
	if resource == nil || !isOffered(export, view, resource) {
		return "", false, nil
	}
	entry, err = entryOf(resource)
	return entry, err == nil, err
}

// entryOf returns a text that changes with the description of a resource.
func entryOf(resource *syncerview.Resource) (string, error) {
	text, err := json.Marshal(resource)
	return string(text), err
}

func findByName(view *syncerview.View, gr schema.GroupResource) *syncerview.Resource {
	for i := range view.Resources {
		if groupResource(view.Resources[i].GroupResource) == gr {
			return &view.Resources[i]
		}
	}
	return nil
}

// Describe implements apiexport.View: it gives published resources the names of the service cluster, and their verbs.
func (p *publisher) Describe(ctx context.Context, export *apisv1alpha2.APIExport, definition discovery.Definition) (discovery.Definition, error) {
	view, err := p.get(ctx, export)
	if err != nil {
		return definition, err
	}
	original := definition.Object
	resource := findByName(view, schema.GroupResource{Group: original.Spec.Group, Resource: original.Spec.Names.Plural})
	if resource == nil {
		return definition, nil
	}
	source := resource.Source
	object := *original
	object.Name = source.GroupResource().String()
	object.Spec.Group = source.Group
	object.Spec.Names = apiextensions.CustomResourceDefinitionNames{Plural: source.Resource, Singular: strings.ToLower(source.Kind), Kind: source.Kind, ListKind: source.Kind + "List"}
	object.Spec.Version = source.VersionOf(object.Spec.Version)
	// A version whose name another one has on the service cluster cannot be served.
	object.Spec.Versions = slices.DeleteFunc(slices.Clone(object.Spec.Versions), func(version apiextensions.CustomResourceDefinitionVersion) bool {
		served, _ := source.WorkspaceVersionOf(source.VersionOf(version.Name))
		return served != version.Name
	})
	for i := range object.Spec.Versions {
		object.Spec.Versions[i].Name = source.VersionOf(object.Spec.Versions[i].Name)
	}
	object.Status.AcceptedNames = object.Spec.Names
	names, err := json.Marshal(source)
	if err != nil {
		return definition, err
	}
	definition.Object, definition.Verbs = &object, objectVerbs
	definition.Content = sha256.Sum256(append(names, definition.Content[:]...))
	return definition, nil
}
