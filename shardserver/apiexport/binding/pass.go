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

// pass is what is known of one logical cluster while it is worked on.
type pass struct {
	*clusterController
	name logicalcluster.Name
	// bindings are all of the cluster, the oldest first: who came first is served first.
	bindings []*apisv1alpha2.APIBinding
	// cluster is nil for a logical cluster without object, which can bind nothing.
	cluster *corev1alpha1.LogicalCluster
	// definitions are the cluster's own.
	definitions []*apiextensions.CustomResourceDefinition
	locks       locks
	// offers has one for each binding that is not being deleted.
	offers []*offer
}

// offer is what the export of a binding offers to it.
type offer struct {
	binding *apisv1alpha2.APIBinding
	facts   facts
}

// reconcile is a ladder: observe, find what is offered, give it out, make what serves it, write.
func (c *clusterController) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	p, err := c.observe(ctx, key.Cluster)
	if err != nil {
		return controller.Result{}, err
	}
	if p.cluster == nil && len(p.bindings) == 0 {
		return controller.Result{}, nil
	}
	var failed []error
	for _, binding := range p.bindings {
		if binding.DeletionTimestamp != nil {
			continue
		}
		offer, err := p.resolve(ctx, binding)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		p.offers = append(p.offers, offer)
	}
	again, err := p.giveOut(ctx)
	if err != nil {
		return controller.Result{}, errors.Join(append(failed, err)...)
	}
	if err := p.judgeNames(ctx); err != nil {
		return controller.Result{}, err
	}
	failed = append(failed, p.define(ctx)...)
	failed = append(failed, p.write(ctx)...)
	return controller.Result{RequeueAfter: again}, errors.Join(failed...)
}

func (c *clusterController) observe(ctx context.Context, name logicalcluster.Name) (*pass, error) {
	p := &pass{clusterController: c, name: name}
	var err error
	if p.bindings, err = c.bindings.List(ctx, "", nil); err != nil {
		return nil, err
	}
	slices.SortFunc(p.bindings, func(a, b *apisv1alpha2.APIBinding) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	if p.cluster, err = c.clusters.Get(ctx, "", corev1alpha1.LogicalClusterName); err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	if err != nil {
		p.cluster = nil // the reader returns no nil of its own
	}
	p.definitions, err = c.local.List(ctx, "", nil)
	return p, err
}

// resolve finds the export of a binding, and the schemas of what it offers.
func (p *pass) resolve(ctx context.Context, binding *apisv1alpha2.APIBinding) (*offer, error) {
	o := &offer{binding: binding, facts: facts{clusterMissing: p.cluster == nil}}
	reference, err := apiindex.ReferenceOf(binding)
	if err != nil {
		o.facts.problem = invalidReference(err)
		return o, nil
	}
	export, err := p.cfg.Exports.ByPath(ctx, reference)
	if apierrors.IsNotFound(err) {
		o.facts.problem = notFound(reference)
		return o, nil
	}
	if err != nil {
		return nil, err
	}
	o.facts.export = export
	if export.Status.IdentityHash == "" {
		o.facts.problem = missingIdentity(reference)
		return o, nil
	}
	if another(binding, export) {
		o.facts.export, o.facts.problem = nil, replaced(reference)
		return o, nil
	}
	for _, offered := range export.Spec.Resources {
		resource, problem, err := p.resource(ctx, export, offered)
		if err != nil {
			return nil, err
		}
		if problem != nil {
			o.facts.problem, o.facts.resources = problem, nil
			return o, nil
		}
		o.facts.resources = append(o.facts.resources, resource)
	}
	slices.SortFunc(o.facts.resources, func(a, b *resource) int {
		return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.Resource, b.Resource))
	})
	return o, nil
}

func (p *pass) resource(ctx context.Context, export *apisv1alpha2.APIExport, offered apisv1alpha2.ResourceSchema) (*resource, *problem, error) {
	found, err := p.cfg.Exports.Schema(ctx, logicalcluster.Of(export), offered.Schema)
	if apierrors.IsNotFound(err) {
		return nil, schemaMissing(export, offered.Schema), nil
	}
	if err != nil {
		return nil, nil, err
	}
	if len(found.Spec.Versions) > 1 && found.Spec.Conversion == nil {
		return nil, schemaUnusable(apiindex.ErrNoConversion, offered.Schema), nil
	}
	return &resource{
		GroupResource: schema.GroupResource{Group: offered.Group, Resource: offered.Name},
		schema:        found,
		identity:      export.Status.IdentityHash,
		virtual:       offered.Storage.Virtual != nil,
	}, nil, nil
}

// giveOut brings the locks up to date, and gives each binding what nobody else has. It returns when a lock runs out.
func (p *pass) giveOut(ctx context.Context) (time.Duration, error) {
	if p.cluster == nil {
		return 0, nil
	}
	stored, err := parseLocks(p.cluster.Annotations[corev1alpha1.ResourceBindingsAnnotationKey])
	p.locks = stored.clone()
	if err != nil { // missing, or nonsense
		p.locks = p.initialLocks()
	}
	established := map[string]bool{}
	for _, definition := range p.definitions {
		established[definition.Name] = apiextensions.IsCRDConditionTrue(definition, apiextensions.Established)
	}
	deleting := p.cluster.DeletionTimestamp != nil
	var again time.Duration
	if !deleting && !awaitsBindings(p.cluster) { // else nobody will want what is given back, or somebody is about to
		again, err = p.locks.tidy(lockFacts{definitions: established, exists: p.exists(ctx), now: p.cfg.Clock.Now()})
		if err != nil {
			return 0, err
		}
	}
	for _, offer := range p.offers {
		if !p.locks.fit(offer.facts.resources, offer.binding.Name) { // others must not suffer from who offers too much
			offer.facts.problem, offer.facts.resources = noRoom(len(offer.facts.resources)), nil
		}
		for _, resource := range offer.facts.resources {
			if !p.locks.take(resource.GroupResource, offer.binding.Name) {
				resource.lockedBy = p.locks[resource.String()].holder(resource.String())
			}
		}
	}
	if stored != nil && p.locks.equal(stored) {
		return again, nil
	}
	if stored == nil && deleting && len(p.locks) == 0 {
		return 0, nil
	}
	return again, p.writeLocks(ctx)
}

// initialLocks gives each resource to the binding that has bound it.
func (p *pass) initialLocks() locks {
	initial := locks{}
	for _, binding := range p.bindings {
		for _, bound := range binding.Status.BoundResources {
			initial.take(schema.GroupResource{Group: bound.Group, Resource: bound.Resource}, binding.Name)
		}
	}
	return initial
}

// exists tells whether a binding exists, and asks storage itself before it denies that: a lock that is given away is
// gone.
func (p *pass) exists(ctx context.Context) func(string) (bool, error) {
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

// judgeNames finds out which resources that bindings hold the lock of cannot be served beside others.
func (p *pass) judgeNames(ctx context.Context) error {
	others := names{}
	p.addOwnNames(others)
	for _, binding := range p.bindings {
		if err := p.addBoundNames(ctx, binding, others); err != nil {
			return err
		}
	}
	for _, offer := range p.offers {
		by := fmt.Sprintf("APIBinding %q of APIExport %q", offer.binding.Name, referenceText(offer.binding))
		for _, resource := range offer.facts.resources {
			if resource.lockedBy != "" {
				continue
			}
			wanted := named{resource.GroupResource, resource.schema.Spec.Names, by}
			if resource.conflict = others.conflict(wanted); resource.conflict == "" {
				others.add(wanted)
			}
		}
	}
	return nil
}

// addOwnNames adds the names of the cluster's own definitions that are served.
func (p *pass) addOwnNames(to names) {
	for _, definition := range p.definitions {
		gr := schema.GroupResource{Group: definition.Spec.Group, Resource: definition.Spec.Names.Plural}
		if !apiextensions.IsCRDConditionTrue(definition, apiextensions.Established) || !p.locks[gr.String()].Definition {
			continue
		}
		to.add(named{gr, plain(&definition.Status.AcceptedNames), fmt.Sprintf("CustomResourceDefinition %q", definition.Name)})
	}
}

// addBoundNames adds the names of what a binding has bound.
func (p *pass) addBoundNames(ctx context.Context, binding *apisv1alpha2.APIBinding, to names) error {
	for _, bound := range binding.Status.BoundResources {
		found, err := p.cfg.Definitions.Names(ctx, types.UID(bound.Schema.UID))
		if err != nil {
			return err
		}
		of := named{GroupResource: schema.GroupResource{Group: bound.Group, Resource: bound.Resource}, by: fmt.Sprintf("APIBinding %q of APIExport %q", binding.Name, referenceText(binding))}
		if found != nil {
			of.names = plain(found)
		} else if of.names, err = p.schemaNames(ctx, binding, bound); err != nil {
			return err
		}
		to.add(of)
	}
	return nil
}

// schemaNames returns the names of a bound resource that needs no definition, or whose definition is lost: those of its
// schema, or the plural alone where that is gone too.
func (p *pass) schemaNames(ctx context.Context, binding *apisv1alpha2.APIBinding, bound apisv1alpha2.BoundAPIResource) (apiextensionsv1.CustomResourceDefinitionNames, error) {
	only := apiextensionsv1.CustomResourceDefinitionNames{Plural: bound.Resource}
	cluster, err := logicalcluster.ParseName(binding.Status.APIExportClusterName)
	if err != nil {
		return only, nil //nolint:nilerr // it tells of no cluster, so there is no schema to be found
	}
	found, err := p.cfg.Exports.Schema(ctx, cluster, bound.Schema.Name)
	if apierrors.IsNotFound(err) {
		return only, nil
	}
	if err != nil {
		return only, err
	}
	return found.Spec.Names, nil
}

func plain(names *apiextensions.CustomResourceDefinitionNames) apiextensionsv1.CustomResourceDefinitionNames {
	return apiextensionsv1.CustomResourceDefinitionNames{
		Plural: names.Plural, Singular: names.Singular, ShortNames: names.ShortNames, Kind: names.Kind, ListKind: names.ListKind, Categories: names.Categories,
	}
}

// define makes sure that what can be bound can be served.
func (p *pass) define(ctx context.Context) (failed []error) {
	if p.cluster == nil {
		return nil
	}
	for _, offer := range p.offers {
		for _, resource := range offer.facts.resources {
			if resource.lockedBy != "" || resource.conflict != "" {
				continue
			}
			if err := p.defineOne(ctx, resource); definitions.IsInvalid(err) {
				resource.invalid = err
			} else if err != nil {
				failed = append(failed, err)
			}
		}
	}
	return failed
}

func (p *pass) defineOne(ctx context.Context, resource *resource) error {
	if definitions.CompiledIn(p.cfg.Registry, resource.GroupResource, resource.identity) {
		resource.established = true
		return nil
	}
	established, err := p.cfg.Definitions.Ensure(ctx, resource.schema)
	if err == nil && !established {
		// From here on an event counts; what came before is seen by a second look.
		p.await(resource.schema.UID, p.name)
		established, err = p.cfg.Definitions.Ensure(ctx, resource.schema)
	}
	resource.established = established
	return err
}
