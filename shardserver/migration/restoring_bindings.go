package migration

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// checkBindings refuses bound resources that cannot be served: without its export, an object is out of reach, and one in a version that the schema of the
// export does not have would end the lists of its resource for all tenants of the export.
func (i *incomingRestore) checkBindings(ctx context.Context, content *restoredContent) error {
	var missing []string
	bound := sets.New[string]()
	for _, binding := range content.bindings {
		why, err := i.checkBinding(ctx, content, binding)
		if err != nil {
			return err
		}
		missing = append(missing, why...)
		for _, resource := range binding.Status.BoundResources {
			bound.Insert(storageOf(resource))
		}
	}
	if len(missing) > 0 {
		return refuseRestore("workspace %s has bindings whose exports are not there as they were: %s. Restore or create these exports with their identities and versions first", i.Path, strings.Join(missing[:min(len(missing), maxNamed)], "; "))
	}
	for _, storage := range slices.Sorted(maps.Keys(content.versions)) {
		if !bound.Has(storage) {
			return refuseRestore("workspace %s has objects of %s in the backup, and no binding for them: use an earlier or a later backup", i.Path, storage)
		}
	}
	return nil
}

// storageOf returns the storage of a bound resource.
func storageOf(bound apisv1alpha2.BoundAPIResource) string {
	return path.Join("/", cmp.Or(bound.Group, "core"), bound.Resource, bound.Schema.IdentityHash)
}

// checkBinding returns which resources of a binding cannot be served.
func (i *incomingRestore) checkBinding(ctx context.Context, content *restoredContent, binding *apisv1alpha2.APIBinding) (missing []string, err error) {
	if len(binding.Status.BoundResources) == 0 && binding.Status.APIExportClusterName == "" || binding.Spec.Reference.Export == nil {
		return nil, nil // it was not bound
	}
	cluster, err := logicalcluster.ParseName(binding.Status.APIExportClusterName)
	if err != nil {
		return nil, refuseRestore("binding %s has no valid logical cluster of its export: %w", binding.Name, err)
	}
	export, err := i.export(ctx, content, cluster, binding.Spec.Reference.Export.Name)
	if err != nil {
		return nil, err
	}
	if export == nil {
		return []string{fmt.Sprintf("binding %s needs APIExport %s of logical cluster %s, which does not exist", binding.Name, binding.Spec.Reference.Export.Name, cluster)}, nil
	}
	for _, bound := range binding.Status.BoundResources {
		what := schema.GroupResource{Group: bound.Group, Resource: bound.Resource}
		if want := bound.Schema.IdentityHash; want != "" && want != export.Status.IdentityHash {
			missing = append(missing, fmt.Sprintf("binding %s needs identity %s of APIExport %s of logical cluster %s for %s, which has %s", binding.Name, want, export.Name, cluster,
				what, cmp.Or(export.Status.IdentityHash, "none")))
			continue
		}
		stored := sets.New(bound.StorageVersions...).Union(content.versions[storageOf(bound)])
		if len(stored) == 0 {
			continue // virtual storage
		}
		resourceSchema, err := i.schema(ctx, content, cluster, schemaNameOf(export, bound))
		if err != nil {
			return nil, err
		}
		if resourceSchema == nil {
			missing = append(missing, fmt.Sprintf("binding %s needs APIResourceSchema %s of logical cluster %s for %s, which does not exist", binding.Name, schemaNameOf(export, bound), cluster, what))
			continue
		}
		for _, version := range resourceSchema.Spec.Versions {
			stored.Delete(version.Name)
		}
		if len(stored) > 0 {
			missing = append(missing, fmt.Sprintf("binding %s has objects of %s in version %s, which APIExport %s of logical cluster %s no longer has (APIResourceSchema %s)", binding.Name, what,
				strings.Join(sets.List(stored), ", "), export.Name, cluster, resourceSchema.Name))
		}
	}
	return missing, nil
}

// schemaNameOf returns the name of the schema by which an export serves a bound resource. One that it no longer offers stays bound.
func schemaNameOf(export *apisv1alpha2.APIExport, bound apisv1alpha2.BoundAPIResource) string {
	for _, offered := range export.Spec.Resources {
		if offered.Group == bound.Group && offered.Name == bound.Resource {
			return offered.Schema
		}
	}
	return bound.Schema.Name
}

// export returns an APIExport that exists, or is restored with the workspace; nil if there is none.
func (i *incomingRestore) export(ctx context.Context, content *restoredContent, cluster logicalcluster.Name, name string) (*apisv1alpha2.APIExport, error) {
	if cluster == i.cluster {
		return content.exports[name], nil
	}
	export, err := i.exports.GetLatest(logicalcluster.With(ctx, cluster), "", name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading APIExport %q of logical cluster %q: %w", name, cluster, err)
	}
	return export, nil
}

// schema returns an APIResourceSchema, as export does.
func (i *incomingRestore) schema(ctx context.Context, content *restoredContent, cluster logicalcluster.Name, name string) (*apisv1alpha1.APIResourceSchema, error) {
	if cluster == i.cluster {
		return content.schemas[name], nil
	}
	found, err := i.schemas.GetLatest(logicalcluster.With(ctx, cluster), "", name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading APIResourceSchema %q of logical cluster %q: %w", name, cluster, err)
	}
	return found, nil
}
