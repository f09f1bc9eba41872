package binding

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/internal/subresources"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
)

// clusterState holds the observed state of one logical cluster during one reconciliation, and what the steps decide.
type clusterState struct {
	*clusterController
	name logicalcluster.Name
	// bindings are ordered by age: the oldest binding is allocated its resources first.
	bindings []*apisv1alpha2.APIBinding
	// cluster is nil if there is no LogicalCluster object, so that nothing can be bound.
	cluster *corev1alpha1.LogicalCluster
	// definitions are the CustomResourceDefinitions of the logical cluster itself.
	definitions []*apiextensions.CustomResourceDefinition
	// reservations are the owners of the resources of the logical cluster.
	reservations reservations
	// states has an element for each binding that is not being deleted.
	states []*bindingState
}

// bindingState is a binding with the inputs of its status.
type bindingState struct {
	binding *apisv1alpha2.APIBinding
	inputs  statusInputs
}

// observe reads the bindings, the LogicalCluster and the CustomResourceDefinitions of a logical cluster.
func (c *clusterController) observe(ctx context.Context, name logicalcluster.Name) (*clusterState, error) {
	s := &clusterState{clusterController: c, name: name}
	var err error
	if s.bindings, err = c.bindings.List(ctx, "", nil); err != nil {
		return nil, err
	}
	slices.SortFunc(s.bindings, func(a, b *apisv1alpha2.APIBinding) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	if s.cluster, err = c.clusters.Get(ctx, "", corev1alpha1.LogicalClusterName); err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	if err != nil {
		s.cluster = nil // the reader returns a typed zero value
	}
	s.definitions, err = c.definitions.List(ctx, "", nil)
	return s, err
}

// resolve finds the export of a binding and the schemas of its resources.
func (s *clusterState) resolve(ctx context.Context, binding *apisv1alpha2.APIBinding) (*bindingState, error) {
	state := &bindingState{binding: binding, inputs: statusInputs{clusterMissing: s.cluster == nil}}
	reference, err := apiindex.ReferenceOf(binding)
	if err != nil {
		state.inputs.problem = invalidReference(err)
		return state, nil
	}
	export, err := s.cfg.Exports.Resolve(ctx, reference)
	if apierrors.IsNotFound(err) {
		state.inputs.problem = exportNotFound(reference)
		return state, nil
	}
	if err != nil {
		return nil, err
	}
	state.inputs.export = export
	if export.Status.IdentityHash == "" {
		state.inputs.problem = missingIdentity(reference)
		return state, nil
	}
	if isOtherExport(binding, export) {
		state.inputs.export, state.inputs.problem = nil, exportReplaced(reference)
		return state, nil
	}
	for _, resourceSchema := range export.Spec.Resources {
		if subresources.IsEntry(resourceSchema) {
			continue
		}
		resource, problem, err := s.resolveResource(ctx, export, resourceSchema)
		if err != nil {
			return nil, err
		}
		if problem != nil {
			state.inputs.problem, state.inputs.resources = problem, nil
			return state, nil
		}
		state.inputs.resources = append(state.inputs.resources, resource)
	}
	slices.SortFunc(state.inputs.resources, func(a, b *exportedResource) int {
		return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.Resource, b.Resource))
	})
	return state, nil
}

func (s *clusterState) resolveResource(ctx context.Context, export *apisv1alpha2.APIExport, resourceSchema apisv1alpha2.ResourceSchema) (*exportedResource, *problem, error) {
	found, err := s.cfg.Exports.GetSchema(ctx, logicalcluster.Of(export), resourceSchema.Schema)
	if apierrors.IsNotFound(err) {
		return nil, schemaMissing(export, resourceSchema.Schema), nil
	}
	if err != nil {
		return nil, nil, err
	}
	if len(found.Spec.Versions) > 1 && found.Spec.Conversion == nil {
		return nil, schemaUnusable(apiindex.ErrNoConversion, resourceSchema.Schema), nil
	}
	return &exportedResource{
		GroupResource: schema.GroupResource{Group: resourceSchema.Group, Resource: resourceSchema.Name},
		schema:        found,
		identity:      export.Status.IdentityHash,
		virtual:       resourceSchema.Storage.Virtual != nil,
	}, nil, nil
}
