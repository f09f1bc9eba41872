package binding

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
)

// statusInputs is everything that the status of a binding is computed from.
type statusInputs struct {
	// clusterMissing means that there is no LogicalCluster to hold reservations.
	clusterMissing bool
	// export is nil if it was not found.
	export *apisv1alpha2.APIExport
	// problem is why the export cannot be bound, or nil.
	problem *problem
	// resources are those of the export, ordered by group and name; empty if there is a problem.
	resources []*exportedResource
}

// exportedResource is one resource of the export of a binding.
type exportedResource struct {
	schema.GroupResource
	schema   *apisv1alpha1.APIResourceSchema
	identity string
	virtual  bool
	// reservedBy describes another owner of the resource, or is "".
	reservedBy string
	// nameConflict describes the resource whose names are in use, or is "".
	nameConflict string
	// invalid is why the schema cannot be served, or nil.
	invalid error
	// established means that the resource can be served.
	established bool
}

func (r *exportedResource) isBindable() bool {
	return r.reservedBy == "" && r.nameConflict == "" && r.invalid == nil && r.established
}

// problem is the content of a False condition.
type problem struct {
	reason, message string
	severity        conditionsv1alpha1.Severity
}

func newError(reason, format string, args ...any) *problem {
	return &problem{reason, fmt.Sprintf(format, args...), conditionsv1alpha1.SeverityError}
}

func invalidReference(err error) *problem {
	return newError(apisv1alpha2.APIExportInvalidReferenceReason, "spec.reference.export cannot be used: %v; create a binding with another one", err)
}

func exportNotFound(reference apiindex.Reference) *problem {
	return newError(apisv1alpha2.APIExportNotFoundReason, "APIExport %q was not found; ask its provider, or delete the binding", reference)
}

// exportReplaced is for an export with the path and name but not the identity of the bound one, for instance in a new
// workspace at the path of a deleted one. It owns neither the objects nor the accepted claims.
func exportReplaced(reference apiindex.Reference) *problem {
	return newError(apisv1alpha2.APIExportNotFoundReason, "APIExport %q has another identity than the one that was bound, which was not found; objects stay under the identity that was bound. Ask its provider, or delete the binding and create it again", reference)
}

// isOtherExport reports whether an export is not the one that a binding has bound: by identity, or by logical cluster if
// the binding has no bound resources.
func isOtherExport(binding *apisv1alpha2.APIBinding, export *apisv1alpha2.APIExport) bool {
	for _, bound := range binding.Status.BoundResources {
		return bound.Schema.IdentityHash != export.Status.IdentityHash // all resources of an export have its identity
	}
	return binding.Status.Phase == apisv1alpha2.APIBindingPhaseBound && binding.Status.APIExportClusterName != logicalcluster.Of(export).String()
}

func missingIdentity(reference apiindex.Reference) *problem {
	return &problem{
		apisv1alpha2.MissingIdentityHashReason,
		fmt.Sprintf("APIExport %q has no identity yet; if that does not change, its provider finds the reason in the condition %s of the export", reference, apisv1alpha2.APIExportIdentityValid),
		conditionsv1alpha1.SeverityWarning,
	}
}

func schemaMissing(export *apisv1alpha2.APIExport, schema string) *problem {
	return newError(apisv1alpha2.InternalErrorReason, "APIResourceSchema %q, which APIExport %q names, was not found; its provider has to create it", schema, export.Name)
}

func schemaUnusable(err error, schema string) *problem {
	return newError(apisv1alpha2.InternalErrorReason, "APIResourceSchema %q of the export cannot be used: %v; its provider has to offer another", schema, err)
}

func tooManyResources(resources int) *problem {
	return newError(apisv1alpha2.InternalErrorReason, "the workspace has no room for the %d resources of the export beside those it has; delete other bindings, or bind an export with fewer", resources)
}

// decide sets the status of a binding from its inputs. It is deterministic and depends on no clock.
func decide(binding *apisv1alpha2.APIBinding, inputs statusInputs) {
	if binding.Status.Phase == "" {
		binding.Status.Phase = apisv1alpha2.APIBindingPhaseBinding
	}
	if inputs.problem != nil {
		setFalse(binding, apisv1alpha2.APIExportValid, inputs.problem)
	} else {
		conditionsv1alpha1.MarkTrue(binding, apisv1alpha2.APIExportValid)
	}
	if inputs.export != nil {
		binding.Status.APIExportClusterName = logicalcluster.Of(inputs.export).String()
		binding.Status.ExportPermissionClaims = inputs.export.Spec.PermissionClaims
	}
	switch pending := inputs.pendingProblem(); {
	case inputs.problem != nil:
		setIncomplete(binding, newWaitingForExport())
	case pending != nil:
		setBoundResources(binding, inputs.resources)
		setIncomplete(binding, pending)
		setFalse(binding, apisv1alpha2.BindingUpToDate, pending)
	default:
		setBoundResources(binding, inputs.resources)
		conditionsv1alpha1.MarkTrue(binding, apisv1alpha2.InitialBindingCompleted)
		conditionsv1alpha1.MarkTrue(binding, apisv1alpha2.BindingUpToDate)
		binding.Status.Phase = apisv1alpha2.APIBindingPhaseBound
	}
	conditionsv1alpha1.SetSummary(binding, apisv1alpha2.InitialBindingCompleted)
}

func newWaitingForExport() *problem {
	return &problem{
		apisv1alpha2.WaitingForEstablishedReason,
		fmt.Sprintf("Nothing can be bound before the export is valid; see the condition %s", apisv1alpha2.APIExportValid),
		conditionsv1alpha1.SeverityInfo,
	}
}

// setIncomplete sets InitialBindingCompleted to False unless it has been True.
func setIncomplete(binding *apisv1alpha2.APIBinding, pending *problem) {
	if !conditionsv1alpha1.IsTrue(binding, apisv1alpha2.InitialBindingCompleted) {
		setFalse(binding, apisv1alpha2.InitialBindingCompleted, pending)
	}
}

func setFalse(binding *apisv1alpha2.APIBinding, condition conditionsv1alpha1.Type, problem *problem) {
	conditionsv1alpha1.MarkFalse(binding, condition, problem.reason, problem.severity, "%s", problem.message)
}

// pendingProblem returns why some resources cannot be bound, the most severe reason first, or nil.
func (s statusInputs) pendingProblem() *problem {
	var invalid, conflicts, pending []string
	for _, resource := range s.resources {
		switch {
		case resource.reservedBy != "":
			conflicts = append(conflicts, fmt.Sprintf("resource %q is in use by %s; delete that to bind the resource", resource.GroupResource, resource.reservedBy))
		case resource.nameConflict != "":
			conflicts = append(conflicts, resource.nameConflict)
		case resource.invalid != nil:
			invalid = append(invalid, resource.invalid.Error())
		case !resource.established:
			pending = append(pending, resource.String())
		}
	}
	switch {
	case s.clusterMissing:
		return newError(apisv1alpha2.LogicalClusterNotFoundReason, "There is no LogicalCluster here; create bindings in workspaces")
	case len(invalid) > 0:
		return newError(apisv1alpha2.APIResourceSchemaInvalidReason, "The provider of the export has to offer another schema: %s", strings.Join(invalid, "; "))
	case len(conflicts) > 0:
		return newError(apisv1alpha2.NamingConflictsReason, "%s", strings.Join(conflicts, "; "))
	case len(pending) > 0:
		return &problem{
			apisv1alpha2.WaitingForEstablishedReason,
			fmt.Sprintf("Waiting for the shard to serve %s, which takes seconds at most", strings.Join(pending, ", ")),
			conditionsv1alpha1.SeverityInfo,
		}
	}
	return nil
}

// setBoundResources adds the bindable resources to status.boundResources. Resources that the export no longer offers
// stay bound.
func setBoundResources(binding *apisv1alpha2.APIBinding, resources []*exportedResource) {
	bound := slices.Clone(binding.Status.BoundResources)
	for _, resource := range resources {
		if !resource.isBindable() {
			continue
		}
		at := slices.IndexFunc(bound, func(b apisv1alpha2.BoundAPIResource) bool {
			return b.Group == resource.Group && b.Resource == resource.Resource
		})
		if at < 0 {
			bound = append(bound, apisv1alpha2.BoundAPIResource{Group: resource.Group, Resource: resource.Resource})
			at = len(bound) - 1
		}
		bound[at].Schema = apisv1alpha2.BoundAPIResourceSchema{Name: resource.schema.Name, UID: string(resource.schema.UID), IdentityHash: resource.identity}
		if !resource.virtual {
			bound[at].StorageVersions = sets.List(sets.New(bound[at].StorageVersions...).Insert(apiindex.StorageVersion(resource.schema)))
		}
	}
	slices.SortFunc(bound, func(a, b apisv1alpha2.BoundAPIResource) int {
		if a.Group != b.Group {
			return strings.Compare(a.Group, b.Group)
		}
		return strings.Compare(a.Resource, b.Resource)
	})
	binding.Status.BoundResources = bound
}

func referenceText(binding *apisv1alpha2.APIBinding) string {
	reference, err := apiindex.ReferenceOf(binding)
	if err != nil {
		return ""
	}
	return reference.String()
}
