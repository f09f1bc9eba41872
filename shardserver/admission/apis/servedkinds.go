package apis

import (
	"context"
	"maps"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/admission/rules"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
)

// servedKinds keeps scope and kind of what an export offers, as Kubernetes does for definitions: it records them in an
// annotation of the export, and refuses an export, or a schema, that would offer a resource with others. Another shard may
// have the consumers, so bindings are not asked.
type servedKinds struct {
	exports *apiindex.Resolver
}

// recorded returns the record that an export must have after a write: what was offered before, and what it offers if that is not
// known. A client's own annotation does not count.
func (s servedKinds) recorded(ctx context.Context, a admission.Attributes, export *apisv1alpha2.APIExport) (before, after apiindex.ServedKinds, err error) {
	cluster, ok := logicalcluster.From(ctx)
	if !ok {
		return nil, nil, rules.ErrNoCluster
	}
	if a.GetOperation() == admission.Update {
		old, err := rules.ObjectOf[*apisv1alpha2.APIExport](a.GetOldObject())
		if err != nil {
			return nil, nil, err
		}
		if before, err = apiindex.ParseServedKinds(old).With(ctx, s.exports, cluster, old.Spec); err != nil {
			return nil, nil, apierrors.NewInternalError(err)
		}
	}
	if after, err = before.With(ctx, s.exports, cluster, export.Spec); err != nil {
		return nil, nil, apierrors.NewInternalError(err)
	}
	return before, after, nil
}

// record sets the annotation.
func (s servedKinds) record(ctx context.Context, a admission.Attributes, export *apisv1alpha2.APIExport) error {
	_, after, err := s.recorded(ctx, a, export)
	if err != nil {
		return err
	}
	text := after.String()
	if export.Annotations[apisv1alpha2.ServedKindsAnnotationKey] == text {
		return nil
	}
	annotations := maps.Clone(export.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	if annotations[apisv1alpha2.ServedKindsAnnotationKey] = text; text == "" {
		delete(annotations, apisv1alpha2.ServedKindsAnnotationKey)
	}
	export.Annotations = annotations
	return nil
}

// validateExport returns an error for each resource that changes, or for an annotation that a later plug-in changed.
func (s servedKinds) validateExport(ctx context.Context, a admission.Attributes, export *apisv1alpha2.APIExport) (field.ErrorList, error) {
	before, after, err := s.recorded(ctx, a, export)
	if err != nil {
		return nil, err
	}
	var errs field.ErrorList
	if !isRecord(apiindex.ParseServedKinds(export), recordedBefore(a), after) {
		errs = append(errs, field.Forbidden(field.NewPath("metadata", "annotations").Key(apisv1alpha2.ServedKindsAnnotationKey), "can only be set by the system"))
	}
	cluster, _ := logicalcluster.From(ctx)
	for i, resource := range export.Spec.Resources {
		gr := schema.GroupResource{Group: resource.Group, Resource: resource.Name}
		served, known := before.Get(gr)
		if !known {
			continue
		}
		found, err := s.exports.GetSchema(ctx, cluster, resource.Schema)
		if apierrors.IsNotFound(err) { // or the watch cache does not have it yet
			found, err = s.exports.GetLatestSchema(ctx, cluster, resource.Schema)
		}
		if apierrors.IsNotFound(err) {
			continue // validateSchema refuses another kind when it is created
		}
		if err != nil {
			return nil, apierrors.NewInternalError(err)
		}
		if err := served.CheckUnchanged(gr, apiindex.KindOf(found)); err != nil {
			errs = append(errs, field.Invalid(field.NewPath("spec", "resources").Index(i).Child("schema"), resource.Schema, err.Error()))
		}
	}
	return errs, nil
}

// recordedBefore returns the record that the stored export has.
func recordedBefore(a admission.Attributes) apiindex.ServedKinds {
	if old, ok := a.GetOldObject().(*apisv1alpha2.APIExport); ok {
		return apiindex.ParseServedKinds(old)
	}
	return nil
}

// isRecord reports whether a record has what was recorded before, and nothing but what can be recorded. It need not be
// complete: the watch cache may have received a schema since it was computed.
func isRecord(record, before, after apiindex.ServedKinds) bool {
	for resource, kind := range before {
		if record[resource] != kind {
			return false
		}
	}
	for resource, kind := range record {
		if after[resource] != kind {
			return false
		}
	}
	return true
}

// validateSchema returns an error if an export of the logical cluster offers a new schema, but has offered its resource with
// another kind: the schema was deleted, or did not exist when the export named it.
func (s servedKinds) validateSchema(ctx context.Context, created *apisv1alpha1.APIResourceSchema) (field.ErrorList, error) {
	cluster, ok := logicalcluster.From(ctx)
	if !ok {
		return nil, rules.ErrNoCluster
	}
	exports, err := s.exports.ListLatest(ctx, cluster) // including one that was changed just before
	if err != nil {
		return nil, err
	}
	gr, kind := schema.GroupResource{Group: created.Spec.Group, Resource: created.Spec.Names.Plural}, apiindex.KindOf(created)
	for _, export := range exports {
		served, known := apiindex.ParseServedKinds(export).Get(gr)
		if !known || served == kind || !offers(export, created.Name) {
			continue
		}
		path := field.NewPath("spec", "scope")
		if served.Scope == kind.Scope {
			path = field.NewPath("spec", "names", "kind")
		}
		return field.ErrorList{field.Forbidden(path, "APIExport "+export.Name+": "+served.CheckUnchanged(gr, kind).Error())}, nil
	}
	return nil, nil
}

func offers(export *apisv1alpha2.APIExport, schemaName string) bool {
	for _, resource := range export.Spec.Resources {
		if resource.Schema == schemaName {
			return true
		}
	}
	return false
}
