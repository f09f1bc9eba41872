package binding

import (
	"context"
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiexport/definitions"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
)

// detectChangedKinds sets invalid of each resource that is bound with another scope or kind than the export offers: objects
// that are stored could neither be read nor deleted. Admission of the export refuses the change, unless the provider's
// shard runs an older version or the export was replaced by one of the same identity. The resource stays bound as it is.
func (s *clusterState) detectChangedKinds(ctx context.Context) error {
	for _, state := range s.states {
		for _, resource := range state.inputs.resources {
			at := slices.IndexFunc(state.binding.Status.BoundResources, func(bound apisv1alpha2.BoundAPIResource) bool {
				return boundGroupResource(bound) == resource.GroupResource
			})
			if at < 0 || state.binding.Status.BoundResources[at].Schema.UID == string(resource.schema.UID) {
				continue
			}
			bound, err := s.findBoundKind(ctx, state.binding, state.binding.Status.BoundResources[at])
			if err != nil {
				return err
			}
			if bound == nil {
				continue // nothing can read the objects; the new schema may
			}
			if err := bound.CheckUnchanged(resource.GroupResource, apiindex.KindOf(resource.schema)); err != nil {
				resource.invalid = fmt.Errorf("APIResourceSchema %q: %w", resource.schema.Name, err)
			}
		}
	}
	return nil
}

// findBoundKind returns the kind of a bound resource by its definition, which it restores from the schema if it was deleted; nil if both
// are gone.
func (s *clusterState) findBoundKind(ctx context.Context, binding *apisv1alpha2.APIBinding, bound apisv1alpha2.BoundAPIResource) (*apiindex.ServedKind, error) {
	definition, err := s.cfg.Definitions.Find(ctx, types.UID(bound.Schema.UID))
	if err != nil {
		return nil, err
	}
	if definition != nil {
		return &apiindex.ServedKind{Scope: apiextensionsv1.ResourceScope(definition.Scope), Kind: definition.Names.Kind}, nil
	}
	found, err := findBoundSchema(ctx, s.cfg.Exports, binding, bound)
	if err != nil || found == nil || string(found.UID) != bound.Schema.UID {
		return nil, err
	}
	if _, err := s.cfg.Definitions.Ensure(ctx, found); err != nil && !definitions.IsInvalid(err) {
		return nil, err
	}
	kind := apiindex.KindOf(found)
	return &kind, nil
}

// findBoundSchema returns the schema with the name of that of a bound resource; nil if it does not exist.
func findBoundSchema(ctx context.Context, exports *apiindex.Resolver, binding *apisv1alpha2.APIBinding, bound apisv1alpha2.BoundAPIResource) (*apisv1alpha1.APIResourceSchema, error) {
	cluster, err := logicalcluster.ParseName(binding.Status.APIExportClusterName)
	if err != nil {
		return nil, nil // without a logical cluster there is no schema
	}
	found, err := exports.GetSchema(ctx, cluster, bound.Schema.Name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return found, err
}
