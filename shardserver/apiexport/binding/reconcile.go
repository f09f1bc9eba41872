package binding

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiexport/definitions"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	"github.com/atoll-dev/atoll/shardserver/controller"
)

// scope is what is known of one logical cluster while it is worked on.
type scope struct {
	*clusterController
	name logicalcluster.Name
	// bindings are all of the cluster, the oldest first: who came first is served first.
	bindings []*apisv1alpha2.APIBinding
	// cluster is nil for a logical cluster without object, which can bind nothing.
	cluster *corev1alpha1.LogicalCluster
	// definitions are the cluster's own.
	definitions  []*apiextensions.CustomResourceDefinition
	reservations reservations
	// states has one for each binding that is not being deleted.
	states []*bindingState
}

// bindingState is what the export of a binding offers to it.
type bindingState struct {
	binding *apisv1alpha2.APIBinding
	inputs  statusInputs
}

// reconcile is a ladder: observe, find what is offered, give it out, make what serves it, write.
func (c *clusterController) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	s, err := c.observe(ctx, key.Cluster)
	if err != nil {
		return controller.Result{}, err
	}
	if s.cluster == nil && len(s.bindings) == 0 {
		return controller.Result{}, nil
	}
	var errs []error
	for _, binding := range s.bindings {
		if binding.DeletionTimestamp != nil {
			continue
		}
		state, err := s.resolve(ctx, binding)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		s.states = append(s.states, state)
	}
	requeueAfter, err := s.allocate(ctx)
	if err != nil {
		return controller.Result{}, errors.Join(append(errs, err)...)
	}
	if err := s.detectNameConflicts(ctx); err != nil {
		return controller.Result{}, err
	}
	errs = append(errs, s.ensureDefinitions(ctx)...)
	errs = append(errs, s.writeStatuses(ctx)...)
	return controller.Result{RequeueAfter: requeueAfter}, errors.Join(errs...)
}

func (c *clusterController) observe(ctx context.Context, name logicalcluster.Name) (*scope, error) {
	s := &scope{clusterController: c, name: name}
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
		s.cluster = nil // the reader returns no nil of its own
	}
	s.definitions, err = c.definitions.List(ctx, "", nil)
	return s, err
}

// resolve finds the export of a binding, and the schemas of what it offers.
func (p *scope) resolve(ctx context.Context, binding *apisv1alpha2.APIBinding) (*bindingState, error) {
	state := &bindingState{binding: binding, inputs: statusInputs{clusterMissing: p.cluster == nil}}
	reference, err := apiindex.ReferenceOf(binding)
	if err != nil {
		state.inputs.problem = invalidReference(err)
		return state, nil
	}
	export, err := p.cfg.Exports.Resolve(ctx, reference)
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
	for _, offered := range export.Spec.Resources {
		resource, problem, err := p.resolveResource(ctx, export, offered)
		if err != nil {
			return nil, err
		}
		if problem != nil {
			state.inputs.problem, state.inputs.resources = problem, nil
			return state, nil
		}
		state.inputs.resources = append(state.inputs.resources, resource)
	}
	slices.SortFunc(state.inputs.resources, func(a, b *offeredResource) int {
		return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.Resource, b.Resource))
	})
	return state, nil
}

func (p *scope) resolveResource(ctx context.Context, export *apisv1alpha2.APIExport, offered apisv1alpha2.ResourceSchema) (*offeredResource, *problem, error) {
	found, err := p.cfg.Exports.GetSchema(ctx, logicalcluster.Of(export), offered.Schema)
	if apierrors.IsNotFound(err) {
		return nil, schemaMissing(export, offered.Schema), nil
	}
	if err != nil {
		return nil, nil, err
	}
	if len(found.Spec.Versions) > 1 && found.Spec.Conversion == nil {
		return nil, schemaUnusable(apiindex.ErrNoConversion, offered.Schema), nil
	}
	return &offeredResource{
		GroupResource: schema.GroupResource{Group: offered.Group, Resource: offered.Name},
		schema:        found,
		identity:      export.Status.IdentityHash,
		virtual:       offered.Storage.Virtual != nil,
	}, nil, nil
}

// allocate brings the locks up to date, and gives each binding what nobody else has. It returns when a lock runs out.
func (p *scope) allocate(ctx context.Context) (time.Duration, error) {
	if p.cluster == nil {
		return 0, nil
	}
	stored, err := parseReservations(p.cluster.Annotations[corev1alpha1.ResourceBindingsAnnotationKey])
	p.reservations = stored.clone()
	if err != nil { // missing, or nonsense
		p.reservations = p.initialReservations()
	}
	established := map[string]bool{}
	for _, definition := range p.definitions {
		established[definition.Name] = apiextensions.IsCRDConditionTrue(definition, apiextensions.Established)
	}
	deleting := p.cluster.DeletionTimestamp != nil
	var requeueAfter time.Duration
	if !deleting && !initialBindingsPending(p.cluster) { // else nobody will want what is given back, or somebody is about to
		requeueAfter, err = p.reservations.prune(pruneInputs{definitions: established, exists: p.exists(ctx), now: p.cfg.Clock.Now()})
		if err != nil {
			return 0, err
		}
	}
	for _, state := range p.states {
		if !p.reservations.fits(state.inputs.resources, state.binding.Name) { // others must not suffer from who offers too much
			state.inputs.problem, state.inputs.resources = tooManyResources(len(state.inputs.resources)), nil
		}
		for _, resource := range state.inputs.resources {
			if !p.reservations.acquire(resource.GroupResource, state.binding.Name) {
				resource.reservedBy = p.reservations[resource.String()].describeOwner(resource.String())
			}
		}
	}
	if stored != nil && p.reservations.equal(stored) {
		return requeueAfter, nil
	}
	if stored == nil && deleting && len(p.reservations) == 0 {
		return 0, nil
	}
	return requeueAfter, p.writeReservations(ctx)
}

// initialReservations gives each resource to the binding that has bound it.
func (p *scope) initialReservations() reservations {
	initial := reservations{}
	for _, binding := range p.bindings {
		for _, bound := range binding.Status.BoundResources {
			initial.acquire(schema.GroupResource{Group: bound.Group, Resource: bound.Resource}, binding.Name)
		}
	}
	return initial
}

// exists tells whether a binding exists, and asks storage itself before it denies that: a lock that is given away is
// gone.
func (p *scope) exists(ctx context.Context) func(string) (bool, error) {
	return func(name string) (bool, error) {
		if slices.ContainsFunc(p.bindings, func(binding *apisv1alpha2.APIBinding) bool { return binding.Name == name }) {
			return true, nil
		}
		_, err := p.clusterController.bindings.GetLatest(ctx, "", name)
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	}
}

// detectNameConflicts finds out which resources that bindings hold the lock of cannot be served beside others.
func (p *scope) detectNameConflicts(ctx context.Context) error {
	others := nameIndex{}
	p.addDefinitionNames(others)
	for _, binding := range p.bindings {
		if err := p.addBoundNames(ctx, binding, others); err != nil {
			return err
		}
	}
	for _, state := range p.states {
		by := fmt.Sprintf("APIBinding %q of APIExport %q", state.binding.Name, referenceText(state.binding))
		for _, resource := range state.inputs.resources {
			if resource.reservedBy != "" {
				continue
			}
			wanted := namedResource{resource.GroupResource, resource.schema.Spec.Names, by}
			if resource.nameConflict = others.findConflict(wanted); resource.nameConflict == "" {
				others.add(wanted)
			}
		}
	}
	return nil
}

// addDefinitionNames adds the names of the cluster's own definitions that are served.
func (p *scope) addDefinitionNames(to nameIndex) {
	for _, definition := range p.definitions {
		gr := schema.GroupResource{Group: definition.Spec.Group, Resource: definition.Spec.Names.Plural}
		if !apiextensions.IsCRDConditionTrue(definition, apiextensions.Established) || !p.reservations[gr.String()].Definition {
			continue
		}
		to.add(namedResource{gr, toV1Names(&definition.Status.AcceptedNames), fmt.Sprintf("CustomResourceDefinition %q", definition.Name)})
	}
}

// addBoundNames adds the names of what a binding has bound.
func (p *scope) addBoundNames(ctx context.Context, binding *apisv1alpha2.APIBinding, to nameIndex) error {
	for _, bound := range binding.Status.BoundResources {
		found, err := p.cfg.Definitions.Names(ctx, types.UID(bound.Schema.UID))
		if err != nil {
			return err
		}
		of := namedResource{GroupResource: schema.GroupResource{Group: bound.Group, Resource: bound.Resource}, owner: fmt.Sprintf("APIBinding %q of APIExport %q", binding.Name, referenceText(binding))}
		if found != nil {
			of.names = toV1Names(found)
		} else if of.names, err = p.schemaNames(ctx, binding, bound); err != nil {
			return err
		}
		to.add(of)
	}
	return nil
}

// schemaNames returns the names of a bound resource that needs no definition, or whose definition is lost: those of its
// schema, or the plural alone where that is gone too.
func (p *scope) schemaNames(ctx context.Context, binding *apisv1alpha2.APIBinding, bound apisv1alpha2.BoundAPIResource) (apiextensionsv1.CustomResourceDefinitionNames, error) {
	only := apiextensionsv1.CustomResourceDefinitionNames{Plural: bound.Resource}
	cluster, err := logicalcluster.ParseName(binding.Status.APIExportClusterName)
	if err != nil {
		return only, nil //nolint:nilerr // it tells of no cluster, so there is no schema to be found
	}
	found, err := p.cfg.Exports.GetSchema(ctx, cluster, bound.Schema.Name)
	if apierrors.IsNotFound(err) {
		return only, nil
	}
	if err != nil {
		return only, err
	}
	return found.Spec.Names, nil
}

func toV1Names(names *apiextensions.CustomResourceDefinitionNames) apiextensionsv1.CustomResourceDefinitionNames {
	return apiextensionsv1.CustomResourceDefinitionNames{
		Plural: names.Plural, Singular: names.Singular, ShortNames: names.ShortNames, Kind: names.Kind, ListKind: names.ListKind, Categories: names.Categories,
	}
}

// ensureDefinitions makes sure that what can be bound can be served.
func (p *scope) ensureDefinitions(ctx context.Context) (errs []error) {
	if p.cluster == nil {
		return nil
	}
	for _, state := range p.states {
		for _, resource := range state.inputs.resources {
			if resource.reservedBy != "" || resource.nameConflict != "" {
				continue
			}
			if err := p.ensureDefinition(ctx, resource); definitions.IsInvalid(err) {
				resource.invalid = err
			} else if err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errs
}

func (p *scope) ensureDefinition(ctx context.Context, resource *offeredResource) error {
	if definitions.IsCompiledIn(p.cfg.Registry, resource.GroupResource, resource.identity) {
		resource.established = true
		return nil
	}
	established, err := p.cfg.Definitions.Ensure(ctx, resource.schema)
	if err == nil && !established {
		// From here on an event counts; what came before is seen by a second look.
		p.addWaiter(resource.schema.UID, p.name)
		established, err = p.cfg.Definitions.Ensure(ctx, resource.schema)
	}
	resource.established = established
	return err
}
