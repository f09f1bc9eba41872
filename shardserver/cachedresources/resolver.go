package cachedresources

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	cachev1alpha1 "github.com/atoll-dev/atoll/api/cache/v1alpha1"
	"github.com/atoll-dev/atoll/internal/subresources"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	"github.com/atoll-dev/atoll/shardserver/storage"
	"github.com/atoll-dev/atoll/shardserver/workspacepath"
)

// Paths resolves paths to logical clusters.
type Paths interface {
	// Locate returns the logical cluster of a path or name. It returns workspacepath.ErrRemote if the path leads to
	// another shard.
	Locate(ctx context.Context, path logicalcluster.Path) (logicalcluster.Name, error)
}

// Exports finds exports, and reports whether a logical cluster of this shard binds one.
type Exports interface {
	Paths
	Resolve(ctx context.Context, reference apiindex.Reference) (*apisv1alpha2.APIExport, error)
	// Consumed is called only once all bindings that existed at the start are in the index.
	Consumed(ctx context.Context, export *apisv1alpha2.APIExport) (bool, error)
}

// ResolvedSlice has the objects that a slice references.
type ResolvedSlice struct {
	// Resource is the ClusterCachedResource. It is nil if it does not exist, which ResourceMessage reports.
	Resource        *cachev1alpha1.ClusterCachedResource
	ResourceMessage string
	// Export is the export whose consumers read the objects. It is nil if it does not exist. ExportMessage reports that,
	// or that the export does not reference the slice.
	Export        *apisv1alpha2.APIExport
	ExportMessage string
	// Entry is the resource of the export that references the slice.
	Entry *apisv1alpha2.ResourceSchema
}

// Complete reports whether consumers can be served.
func (s ResolvedSlice) Complete() bool {
	return s.Resource != nil && s.Export != nil && s.Entry != nil && s.ExportMessage == ""
}

// ResourceResolver finds ClusterCachedResources of all shards.
type ResourceResolver struct {
	paths    Paths
	registry *storage.Registry
	// global are those of all shards, local those of this shard.
	global, local *storage.Reader[*cachev1alpha1.ClusterCachedResource]
}

// NewResourceResolver returns a ResourceResolver.
func NewResourceResolver(registry *storage.Registry, paths Paths) ResourceResolver {
	local := storage.NewReader[*cachev1alpha1.ClusterCachedResource](registry, cachedResources)
	return ResourceResolver{paths, registry, local.Global(), local}
}

// SliceResolver resolves the references of slices.
type SliceResolver struct {
	ResourceResolver
	exports Exports
}

// NewSliceResolver returns a SliceResolver.
func NewSliceResolver(registry *storage.Registry, exports Exports) SliceResolver {
	return SliceResolver{NewResourceResolver(registry, exports), exports}
}

// Resolve resolves the references of a slice. Faults that the owner of the slice must correct are in the result; errors
// are to be retried.
func (s SliceResolver) Resolve(ctx context.Context, slice *cachev1alpha1.ClusterCachedResourceEndpointSlice) (ResolvedSlice, error) {
	var resolved ResolvedSlice
	if err := s.resolveResource(ctx, slice, &resolved); err != nil {
		return resolved, err
	}
	return resolved, s.resolveExport(ctx, slice, &resolved)
}

func (s SliceResolver) resolveResource(ctx context.Context, slice *cachev1alpha1.ClusterCachedResourceEndpointSlice, resolved *ResolvedSlice) error {
	ref := slice.Spec.ClusterCachedResource
	resolved.ResourceMessage = fmt.Sprintf("ClusterCachedResource %q was not found in %s; create it, or delete the slice", ref.Name, describePath(ref.Path))
	cluster := logicalcluster.Of(slice)
	if ref.Path != "" {
		var err error
		if cluster, err = s.Locate(ctx, ref.Path, ref.Name); err != nil || cluster.Empty() {
			return client.IgnoreNotFound(err)
		}
	}
	found, err := s.global.Get(logicalcluster.With(ctx, cluster), "", ref.Name)
	if err == nil {
		resolved.Resource, resolved.ResourceMessage = found, ""
	}
	return client.IgnoreNotFound(err)
}

// Locate returns the logical cluster of a referenced ClusterCachedResource; empty if the path is invalid or does not
// exist. If the path leads to another shard, it is the logical cluster of the ClusterCachedResource of this name that
// is annotated with the path; empty if several are, as none of them is more trustworthy.
func (r ResourceResolver) Locate(ctx context.Context, path, name string) (logicalcluster.Name, error) {
	none := logicalcluster.Name{}
	parsed, err := logicalcluster.ParsePath(path)
	if err != nil {
		return none, nil // an invalid path does not exist
	}
	cluster, err := r.paths.Locate(ctx, parsed)
	if !errors.Is(err, workspacepath.ErrRemote) {
		return cluster, client.IgnoreNotFound(err)
	}
	all, err := r.listByPath(ctx, path, name)
	if err != nil {
		return none, err
	}
	found := none
	for _, cachedResource := range all {
		if !found.Empty() && found != logicalcluster.Of(cachedResource) {
			return none, nil
		}
		found = logicalcluster.Of(cachedResource)
	}
	if found.Empty() {
		return none, r.global.CheckSynced()
	}
	return found, nil
}

// listByPath returns the ClusterCachedResources of that name that are annotated with a path. For logical clusters of
// this shard, its own objects take precedence over published ones.
func (r ResourceResolver) listByPath(ctx context.Context, path, name string) ([]*cachev1alpha1.ClusterCachedResource, error) {
	matches := func(cachedResource *cachev1alpha1.ClusterCachedResource) bool {
		return cachedResource.Name == name && cachedResource.Annotations[logicalcluster.PathAnnotationKey] == path
	}
	found, err := r.local.List(logicalcluster.With(ctx, logicalcluster.Wildcard), "", nil)
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(cachedResource *cachev1alpha1.ClusterCachedResource) bool { return !matches(cachedResource) })
	for _, object := range r.registry.RemoteStore().List(cachedResources, logicalcluster.Wildcard) {
		cachedResource, ok := object.(*cachev1alpha1.ClusterCachedResource)
		if !ok || !matches(cachedResource) {
			continue
		}
		isLocal, err := r.registry.IsLocal(ctx, logicalcluster.Of(cachedResource))
		if err != nil {
			return nil, err
		}
		if !isLocal {
			found = append(found, cachedResource)
		}
	}
	return found, nil
}

func (s SliceResolver) resolveExport(ctx context.Context, slice *cachev1alpha1.ClusterCachedResourceEndpointSlice, resolved *ResolvedSlice) error {
	ref := slice.Spec.APIExport
	if ref.Name == "" {
		resolved.ExportMessage = "spec.export is not set; create a slice with the name of the APIExport whose consumers it serves"
		return nil
	}
	resolved.ExportMessage = fmt.Sprintf("APIExport %q was not found in %s; create it, or delete the slice", ref.Name, describePath(ref.Path))
	reference, err := apiindex.NewReference(logicalcluster.Of(slice), ref.Path, ref.Name)
	if err != nil {
		return nil // the message reports it
	}
	export, err := s.exports.Resolve(ctx, reference)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	resolved.Export = export
	if resolved.Entry = EntryFor(export, slice); resolved.Entry == nil {
		resolved.ExportMessage = fmt.Sprintf("no resource of APIExport %q references this slice in storage.virtual.reference; add the reference", ref.Name)
		return nil
	}
	resolved.ExportMessage = ""
	if resource := resolved.Resource; resource != nil {
		resolved.ExportMessage = describeMismatch(resolved.Entry, resource)
	}
	return nil
}

// describeMismatch returns the message about an export whose resource does not match the ClusterCachedResource, or "".
func describeMismatch(entry *apisv1alpha2.ResourceSchema, resource *cachev1alpha1.ClusterCachedResource) string {
	if entry.Group != resource.Spec.Group || entry.Name != resource.Spec.Resource {
		return fmt.Sprintf("the export serves %s by this slice, whose cached resource is %s", schema.GroupResource{Group: entry.Group, Resource: entry.Name}, groupResource(resource))
	}
	if wanted := entry.Storage.Virtual.IdentityHash; wanted != "" && wanted != resource.Status.IdentityHash {
		return fmt.Sprintf("storage.virtual.identityHash of the export is not status.identityHash of ClusterCachedResource %q; remove it, or copy it from there", resource.Name)
	}
	return ""
}

// EntryFor returns the resource of an export whose virtual storage is a slice in the same logical cluster.
func EntryFor(export *apisv1alpha2.APIExport, slice *cachev1alpha1.ClusterCachedResourceEndpointSlice) *apisv1alpha2.ResourceSchema {
	if logicalcluster.Of(export) != logicalcluster.Of(slice) {
		return nil
	}
	at := slices.IndexFunc(export.Spec.Resources, func(entry apisv1alpha2.ResourceSchema) bool {
		virtual := entry.Storage.Virtual
		return virtual != nil && !subresources.IsEntry(entry) && virtual.Reference.Name == slice.Name && virtual.Reference.Kind == "ClusterCachedResourceEndpointSlice" &&
			virtual.Reference.APIGroup != nil && *virtual.Reference.APIGroup == cachev1alpha1.GroupName
	})
	if at < 0 {
		return nil
	}
	return &export.Spec.Resources[at]
}

// describePath describes a path in messages; an empty path is the workspace of the slice.
func describePath(path string) string {
	if path == "" {
		return "the workspace of the slice"
	}
	return strconv.Quote(path)
}
