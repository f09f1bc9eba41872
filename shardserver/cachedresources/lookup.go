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
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	"github.com/atoll-dev/atoll/shardserver/storage"
	"github.com/atoll-dev/atoll/shardserver/workspacepath"
)

// Paths finds logical clusters.
type Paths interface {
	// Locate returns the logical cluster of a path or name. It fails with paths.ErrElsewhere where only another shard knows.
	Locate(ctx context.Context, path logicalcluster.Path) (logicalcluster.Name, error)
}

// Exports finds exports, and tells whether a logical cluster of this shard binds one.
type Exports interface {
	Paths
	Resolve(ctx context.Context, reference apiindex.Reference) (*apisv1alpha2.APIExport, error)
	// Consumed is asked after all bindings that existed at the start are known.
	Consumed(ctx context.Context, export *apisv1alpha2.APIExport) (bool, error)
}

// Sight is what a slice shows, and to whom.
type Sight struct {
	// Resource is the ClusterCachedResource, nil if it is not there, which ResourceFault says.
	Resource      *cachev1alpha1.ClusterCachedResource
	ResourceFault string
	// Export is the export whose consumers see it, nil if it is not there. ExportFault says so, or that it does not refer
	// to the slice.
	Export      *apisv1alpha2.APIExport
	ExportFault string
	// Entry is what the export says of the resource.
	Entry *apisv1alpha2.ResourceSchema
}

// Complete tells whether consumers can be shown anything.
func (s Sight) Complete() bool {
	return s.Resource != nil && s.Export != nil && s.Entry != nil && s.ExportFault == ""
}

// Finder finds ClusterCachedResources, on whatever shard they are.
type Finder struct {
	paths    Paths
	registry *storage.Registry
	// resources are those of all shards, here those of this one.
	resources, here *storage.Reader[*cachev1alpha1.ClusterCachedResource]
}

// NewFinder returns a Finder.
func NewFinder(registry *storage.Registry, where Paths) Finder {
	here := storage.NewReader[*cachev1alpha1.ClusterCachedResource](registry, cachedResources)
	return Finder{where, registry, here.Everywhere(), here}
}

// Lookup follows the references of slices.
type Lookup struct {
	Finder
	exports Exports
}

// NewLookup returns a Lookup.
func NewLookup(registry *storage.Registry, exports Exports) Lookup {
	return Lookup{NewFinder(registry, exports), exports}
}

// Of follows the references of a slice. What whoever made the slice has to mend is in the answer, errors are for another
// try.
func (l Lookup) Of(ctx context.Context, slice *cachev1alpha1.ClusterCachedResourceEndpointSlice) (Sight, error) {
	var sight Sight
	if err := l.resource(ctx, slice, &sight); err != nil {
		return sight, err
	}
	return sight, l.export(ctx, slice, &sight)
}

func (l Lookup) resource(ctx context.Context, slice *cachev1alpha1.ClusterCachedResourceEndpointSlice, sight *Sight) error {
	named := slice.Spec.ClusterCachedResource
	sight.ResourceFault = fmt.Sprintf("ClusterCachedResource %q was not found in %s; create it, or delete the slice", named.Name, storageKey(named.Path))
	cluster := logicalcluster.Of(slice)
	if named.Path != "" {
		var err error
		if cluster, err = l.Locate(ctx, named.Path, named.Name); err != nil || cluster.Empty() {
			return client.IgnoreNotFound(err)
		}
	}
	found, err := l.resources.Get(logicalcluster.With(ctx, cluster), "", named.Name)
	if err == nil {
		sight.Resource, sight.ResourceFault = found, ""
	}
	return client.IgnoreNotFound(err)
}

// Locate returns the logical cluster that a reference to a ClusterCachedResource means, empty for what makes no sense or
// is nowhere. Where the path leads to another shard, it is that of the one ClusterCachedResource of this name which says
// that it is there; where several do, nobody can tell which to believe.
func (f Finder) Locate(ctx context.Context, path, name string) (logicalcluster.Name, error) {
	none := logicalcluster.Name{}
	parsed, err := logicalcluster.ParsePath(path)
	if err != nil {
		return none, nil //nolint:nilerr // it is nowhere
	}
	cluster, err := f.paths.Locate(ctx, parsed)
	if !errors.Is(err, workspacepath.ErrElsewhere) {
		return cluster, client.IgnoreNotFound(err)
	}
	all, err := f.at(ctx, path, name)
	if err != nil {
		return none, err
	}
	found := none
	for _, offer := range all {
		if !found.Empty() && found != logicalcluster.Of(offer) {
			return none, nil
		}
		found = logicalcluster.Of(offer)
	}
	if found.Empty() {
		return none, f.resources.Complete()
	}
	return found, nil
}

// at returns what says of itself that it is the ClusterCachedResource of that name at a path. Of logical clusters that are
// here, this shard knows better than others.
func (f Finder) at(ctx context.Context, path, name string) ([]*cachev1alpha1.ClusterCachedResource, error) {
	is := func(offer *cachev1alpha1.ClusterCachedResource) bool {
		return offer.Name == name && offer.Annotations[logicalcluster.PathAnnotationKey] == path
	}
	found, err := f.here.List(logicalcluster.With(ctx, logicalcluster.Wildcard), "", nil)
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(offer *cachev1alpha1.ClusterCachedResource) bool { return !is(offer) })
	for _, object := range f.registry.Elsewhere().List(cachedResources, logicalcluster.Wildcard) {
		offer, ok := object.(*cachev1alpha1.ClusterCachedResource)
		if !ok || !is(offer) {
			continue
		}
		here, err := f.registry.Here(ctx, logicalcluster.Of(offer))
		if err != nil {
			return nil, err
		}
		if !here {
			found = append(found, offer)
		}
	}
	return found, nil
}

func (l Lookup) export(ctx context.Context, slice *cachev1alpha1.ClusterCachedResourceEndpointSlice, sight *Sight) error {
	named := slice.Spec.APIExport
	sight.ExportFault = fmt.Sprintf("APIExport %q was not found in %s; create it, or delete the slice", named.Name, storageKey(named.Path))
	reference, err := apiindex.NewReference(logicalcluster.Of(slice), named.Path, named.Name)
	if err != nil {
		return nil //nolint:nilerr // it is the fault that is reported
	}
	export, err := l.exports.Resolve(ctx, reference)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	sight.Export = export
	if sight.Entry = EntryFor(export, slice); sight.Entry == nil {
		sight.ExportFault = fmt.Sprintf("no resource of APIExport %q refers to this slice by storage.virtual.reference; refer to it there", named.Name)
		return nil
	}
	sight.ExportFault = ""
	if resource := sight.Resource; resource != nil {
		sight.ExportFault = mismatch(sight.Entry, resource)
	}
	return nil
}

// mismatch says what is wrong with what an export says of a ClusterCachedResource.
func mismatch(entry *apisv1alpha2.ResourceSchema, resource *cachev1alpha1.ClusterCachedResource) string {
	if entry.Group != resource.Spec.Group || entry.Name != resource.Spec.Resource {
		return fmt.Sprintf("the export shows %s by this slice, which is about %s", schema.GroupResource{Group: entry.Group, Resource: entry.Name}, groupResource(resource))
	}
	if resource.Status.IdentityHash == "" || entry.Storage.Virtual.IdentityHash != resource.Status.IdentityHash {
		return fmt.Sprintf("storage.virtual.identityHash of the export is not status.identityHash of ClusterCachedResource %q; copy it from there", resource.Name)
	}
	return ""
}

// EntryFor returns the resource of an export that a slice, which lies beside the export, is the virtual storage of.
func EntryFor(export *apisv1alpha2.APIExport, slice *cachev1alpha1.ClusterCachedResourceEndpointSlice) *apisv1alpha2.ResourceSchema {
	if logicalcluster.Of(export) != logicalcluster.Of(slice) {
		return nil
	}
	at := slices.IndexFunc(export.Spec.Resources, func(entry apisv1alpha2.ResourceSchema) bool {
		virtual := entry.Storage.Virtual
		return virtual != nil && virtual.Reference.Name == slice.Name && virtual.Reference.Kind == "ClusterCachedResourceEndpointSlice" &&
			virtual.Reference.APIGroup != nil && *virtual.Reference.APIGroup == cachev1alpha1.GroupName
	})
	if at < 0 {
		return nil
	}
	return &export.Spec.Resources[at]
}

// place says where an object at a path is, which is beside the slice if there is none.
func storageKey(path string) string {
	if path == "" {
		return "the workspace of the slice"
	}
	return strconv.Quote(path)
}
