package binding

import (
	"context"
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
)

// detectNameConflicts sets nameConflict of each resource whose names are taken by another resource of the logical
// cluster. Resources that are reserved for another owner are skipped.
func (s *clusterState) detectNameConflicts(ctx context.Context) error {
	known := nameIndex{}
	s.addDefinitionNames(known)
	for _, binding := range s.bindings {
		if err := s.addBoundNames(ctx, binding, known); err != nil {
			return err
		}
	}
	for _, state := range s.states {
		owner := fmt.Sprintf("APIBinding %q of APIExport %q", state.binding.Name, referenceText(state.binding))
		for _, resource := range state.inputs.resources {
			if resource.reservedBy != "" {
				continue
			}
			candidate := namedResource{resource.GroupResource, resource.schema.Spec.Names, owner}
			if resource.nameConflict = known.findConflict(candidate); resource.nameConflict == "" {
				known.add(candidate)
			}
		}
	}
	return nil
}

// addDefinitionNames adds the names of the established CustomResourceDefinitions of the logical cluster.
func (s *clusterState) addDefinitionNames(to nameIndex) {
	for _, definition := range s.definitions {
		gr := schema.GroupResource{Group: definition.Spec.Group, Resource: definition.Spec.Names.Plural}
		if !apiextensions.IsCRDConditionTrue(definition, apiextensions.Established) || !s.reservations[gr.String()].Definition {
			continue
		}
		to.add(namedResource{gr, toV1Names(&definition.Status.AcceptedNames), fmt.Sprintf("CustomResourceDefinition %q", definition.Name)})
	}
}

// addBoundNames adds the names of the bound resources of a binding.
func (s *clusterState) addBoundNames(ctx context.Context, binding *apisv1alpha2.APIBinding, to nameIndex) error {
	for _, bound := range binding.Status.BoundResources {
		found, err := s.cfg.Definitions.Find(ctx, types.UID(bound.Schema.UID))
		if err != nil {
			return err
		}
		resource := namedResource{GroupResource: schema.GroupResource{Group: bound.Group, Resource: bound.Resource}, owner: fmt.Sprintf("APIBinding %q of APIExport %q", binding.Name, referenceText(binding))}
		if found != nil {
			resource.names = toV1Names(&found.Names)
		} else if resource.names, err = s.schemaNames(ctx, binding, bound); err != nil {
			return err
		}
		to.add(resource)
	}
	return nil
}

// schemaNames returns the names of a bound resource without CustomResourceDefinition: those of its schema, or only the
// plural if the schema does not exist.
func (s *clusterState) schemaNames(ctx context.Context, binding *apisv1alpha2.APIBinding, bound apisv1alpha2.BoundAPIResource) (apiextensionsv1.CustomResourceDefinitionNames, error) {
	fallback := apiextensionsv1.CustomResourceDefinitionNames{Plural: bound.Resource}
	found, err := findBoundSchema(ctx, s.cfg.Exports, binding, bound)
	if found == nil || err != nil {
		return fallback, err
	}
	return found.Spec.Names, nil
}

func toV1Names(names *apiextensions.CustomResourceDefinitionNames) apiextensionsv1.CustomResourceDefinitionNames {
	return apiextensionsv1.CustomResourceDefinitionNames{
		Plural: names.Plural, Singular: names.Singular, ShortNames: names.ShortNames, Kind: names.Kind, ListKind: names.ListKind, Categories: names.Categories,
	}
}
