package publisher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/syncagent/dialects"
	"github.com/atoll-dev/atoll/syncagent/publication"
)

// Reasons of events of the APIExport.
const (
	reasonAddingSchemas   = "AddingResourceSchemas"
	reasonRemovingSchemas = "RemovingResourceSchemas"
	reasonAddingClaims    = "AddingPermissionClaims"
)

// Reasons of the condition Exported.
const (
	reasonExported     = "Exported"
	reasonNoSchema     = "NoSchema"
	reasonNoExport     = "ExportNotFound"
	ReasonDuplicate    = "ResourceAlreadyPublished"
	reasonExportFailed = "ExportNotUpdated"
	// reasonOtherIdentity means that a claim of the export is for the resource of another export.
	reasonOtherIdentity = "ClaimOfOtherIdentity"
)

// exportReconciler reconciles the APIExport.
type exportReconciler struct {
	options   Options
	workspace client.Client
}

// Reconcile implements reconcile.Reconciler.
func (r *exportReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	publications, err := r.options.Publications.List(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	publishedResources.Set(float64(len(publications)))
	publications = slices.DeleteFunc(publications, func(p *publication.Publication) bool { return p.Object.GetDeletionTimestamp() != nil })
	exported, duplicates := SelectSchemas(publications)
	outcome, export, err := r.update(ctx, request.Name, publications, exported)
	if apierrors.IsConflict(err) { // the event of the newer version enqueues the export
		return reconcile.Result{}, nil
	}
	errs := []error{err}
	for _, p := range publications {
		condition := outcome
		switch {
		case p.SchemaName == "":
			condition = metav1.Condition{Status: metav1.ConditionFalse, Reason: reasonNoSchema, Message: "There is no APIResourceSchema yet; see the condition SchemaReady."}
		case slices.Contains(duplicates, p):
			condition = DuplicateCondition(p, exported[ResourceOf(p.SchemaName)])
		case condition.Status == metav1.ConditionTrue:
			condition = claimCondition(p, export, condition)
		}
		errs = append(errs, r.report(ctx, p, condition))
	}
	return reconcile.Result{}, errors.Join(errs...)
}

// DuplicateCondition returns the condition of a publication that has no effect, because an older one publishes the same resource.
func DuplicateCondition(p, first *publication.Publication) metav1.Condition {
	return metav1.Condition{Status: metav1.ConditionFalse, Reason: ReasonDuplicate, Message: fmt.Sprintf(
		"PublishedResource %s already publishes %s. Set another name or group in spec.projection, or delete one of the two.", dialects.Key(first.Object).Name, ResourceOf(p.SchemaName))}
}

// claimCondition returns exported, or a false condition if the export claims a resource that the publication needs with another identity.
func claimCondition(p *publication.Publication, export *apisv1alpha1.APIExport, exported metav1.Condition) metav1.Condition {
	wanted := wantedClaims([]*publication.Publication{p}, export.Spec.LatestResourceSchemas)
	others := otherIdentities(export.Spec.PermissionClaims, wanted)
	if len(others) == 0 {
		return exported
	}
	return metav1.Condition{Status: metav1.ConditionFalse, Reason: reasonOtherIdentity, Message: fmt.Sprintf(
		"APIExport %s claims %s with another identityHash than spec.related. Correct the one that is wrong; consumers have to accept a changed claim.", export.Name, strings.Join(others, ", "))}
}

// update writes the export if it has to change, and returns the condition Exported of publications with a schema.
func (r *exportReconciler) update(ctx context.Context, name string, publications []*publication.Publication, exported map[string]*publication.Publication) (metav1.Condition, *apisv1alpha1.APIExport, error) {
	failed := func(reason, format string, args ...any) metav1.Condition {
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: reason, Message: fmt.Sprintf(format, args...)}
	}
	export := &apisv1alpha1.APIExport{}
	err := r.workspace.Get(ctx, client.ObjectKey{Name: name}, export)
	switch {
	case apierrors.IsNotFound(err):
		return failed(reasonNoExport, "There is no APIExport %s yet. Create an empty one in the workspace that the APIExportEndpointSlice refers to.", name), nil, nil
	case err != nil:
		return failed(reasonExportFailed, "Cannot read APIExport %s: %v", name, err), nil, err
	case len(exported) == 0:
		return metav1.Condition{}, nil, nil
	}
	if err := r.write(ctx, export, publications, exported); err != nil {
		return failed(reasonExportFailed, "Cannot update APIExport %s: %v", name, err), nil, err
	}
	return metav1.Condition{Status: metav1.ConditionTrue, Reason: reasonExported, Message: fmt.Sprintf("APIExport %s has the schema; workspaces can bind it", name)}, export, nil
}

// write writes the schemas, the claims and the annotation of an export, if any of them has to change. It writes no other field, and
// returns a conflict if another client has changed the export in the meantime.
func (r *exportReconciler) write(ctx context.Context, export *apisv1alpha1.APIExport, publications []*publication.Publication, exported map[string]*publication.Publication) error {
	before := export.DeepCopy()
	export.Spec.LatestResourceSchemas = mergeSchemas(before.Spec.LatestResourceSchemas, exported)
	wanted := wantedClaims(publications, export.Spec.LatestResourceSchemas)
	var claims []apisv1alpha1.PermissionClaim
	export.Spec.PermissionClaims, claims = mergeClaims(before.Spec.PermissionClaims, wanted)
	// The name of another agent does not cause a write: two agents with one export would overwrite each other forever.
	if slices.Equal(before.Spec.LatestResourceSchemas, export.Spec.LatestResourceSchemas) && len(claims) == 0 &&
		export.Annotations[publication.LabelAgentName] != "" {
		return nil
	}
	export.Annotations = with(before.Annotations, map[string]string{publication.LabelAgentName: r.options.AgentName})
	if err := r.workspace.Patch(ctx, export, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return err
	}
	r.record(ctx, export, before.Spec.LatestResourceSchemas, claims)
	return nil
}

// record creates events of the export about the changes.
func (r *exportReconciler) record(ctx context.Context, export *apisv1alpha1.APIExport, before []string, claims []apisv1alpha1.PermissionClaim) {
	after := export.Spec.LatestResourceSchemas
	if added := difference(after, before); len(added) > 0 {
		r.event(ctx, export, corev1.EventTypeNormal, reasonAddingSchemas, "Added "+strings.Join(added, ", "))
	}
	if removed := difference(before, after); len(removed) > 0 {
		r.event(ctx, export, corev1.EventTypeWarning, reasonRemovingSchemas, "Removed "+strings.Join(removed, ", "))
	}
	if len(claims) > 0 {
		var names []string
		for _, claim := range claims {
			names = append(names, strings.TrimSuffix(claim.Resource+"."+claim.Group, "."))
		}
		r.event(ctx, export, corev1.EventTypeNormal, reasonAddingClaims, "Added claims for "+strings.Join(names, ", ")+"; consumers have to accept them")
	}
}

// event creates an event of the core group, because agents have permission for that group in the workspace. It logs failures, because a
// failed event does not justify a retry.
func (r *exportReconciler) event(ctx context.Context, export *apisv1alpha1.APIExport, eventType, reason, message string) {
	now := metav1.Now()
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, GenerateName: export.Name + "."},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: apisv1alpha1.SchemeGroupVersion.String(), Kind: "APIExport", Name: export.Name, UID: export.UID, ResourceVersion: export.ResourceVersion,
		},
		Type: eventType, Reason: reason, Message: note(message), Count: 1, FirstTimestamp: now, LastTimestamp: now,
		Source: corev1.EventSource{Component: eventSource},
	}
	if err := r.workspace.Create(ctx, event); err != nil {
		log.FromContext(ctx).Info("Failed to write an event of the APIExport", "reason", reason, "err", err)
	}
}

// report writes the condition Exported of a publication.
func (r *exportReconciler) report(ctx context.Context, p *publication.Publication, condition metav1.Condition) error {
	condition.Type, condition.ObservedGeneration = syncagentv1alpha1.ConditionExported, p.Object.GetGeneration()
	err := r.options.Publications.WriteStatus(ctx, p, func(status *syncagentv1alpha1.PublishedResourceStatus) {
		meta.SetStatusCondition(&status.Conditions, condition)
	})
	return client.IgnoreNotFound(err)
}
