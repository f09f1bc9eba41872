package template

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/backend"
)

// takeOverInterval is how often the controller counts the instances for which the previous backend still has objects.
const takeOverInterval = time.Second

// takeOver makes the backend that has been set up the one that provides the instances. First, the previous backend removes its objects of
// each instance. The status names that backend, and each step is written before the next one, so that the process may end at any time:
//
//  1. The controller writes replacedBy. The previous backend removes its objects, instance by instance, and creates no new ones: after it
//     has added the finalizer to an instance, and before it creates anything, it reads the Template.
//  2. No instance has the finalizer: nothing is left.
//  3. The controller removes the annotation, which allows this once.
//  4. The controller writes name: the new backend provides the instances.
func (r *Reconciler) takeOver(ctx context.Context, s *scope) error {
	status, name := &s.template.Status.Backend, s.template.Spec.Backend
	if status.Name == "" || status.Name == name {
		status.Name, status.ReplacedBy = name, ""
		return nil
	}
	provided := 0
	if s.template.Status.Registered.SchemaInAPIExport {
		var err error
		if provided, err = r.Instances.Provided(ctx, s.template); err != nil {
			return fmt.Errorf("counting the instances that backend %q provides: %w", status.Name, err)
		}
	}
	if refused := r.refuseTakeOver(s, provided); refused != nil {
		status.ReplacedBy = ""
		return refused
	}
	started := status.ReplacedBy == name
	if !started {
		status.ReplacedBy = name
		r.Events.Eventf(s.template, nil, corev1.EventTypeNormal, "BackendChanging", "TakeOver", "backend %q removes what it made for instances; backend %q takes over", status.Name, name)
	}
	if !started || provided > 0 {
		return &problem{condition: infrastructurev1alpha1.ConditionBackendReady, reason: infrastructurev1alpha1.ReasonDraining, after: takeOverInterval,
			message: fmt.Sprintf("waiting until backend %q has removed what it made for %d instances; then backend %q takes over", status.Name, provided, name)}
	}
	if err := r.tearDownBackend(ctx, s, status.Name); err != nil {
		return err
	}
	if err := r.removeAnnotation(ctx, s.template, backend.AnnotationMigrate(r.Group)); err != nil {
		return err
	}
	r.Events.Eventf(s.template, nil, corev1.EventTypeNormal, "BackendChanged", "TakeOver", "backend %q has taken over from backend %q", name, status.Name)
	status.Name, status.ReplacedBy = name, ""
	return nil
}

// removeAnnotation removes an annotation of a Template, if it has it.
func (r *Reconciler) removeAnnotation(ctx context.Context, t *infrastructurev1alpha1.Template, key string) error {
	if _, ok := t.Annotations[key]; !ok {
		return nil
	}
	annotated := &infrastructurev1alpha1.Template{ObjectMeta: metav1.ObjectMeta{Name: t.Name}}
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}}}`, key))
	if err := r.Client.Patch(ctx, annotated, patch); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("removing the annotation %s: %w", key, err)
	}
	return nil
}

// refuseTakeOver returns why the current backend, which may have objects for a number of instances, cannot be replaced.
func (r *Reconciler) refuseTakeOver(s *scope, provided int) error {
	if provided == 0 {
		return nil
	}
	previous, name := s.template.Status.Backend.Name, s.template.Spec.Backend
	refused := &problem{condition: infrastructurev1alpha1.ConditionBackendReady}
	_, registered := r.Backends.Get(previous)
	_, allowed := s.template.Annotations[backend.AnnotationMigrate(r.Group)]
	switch {
	case !registered:
		refused.reason = infrastructurev1alpha1.ReasonBackendNotFound
		refused.message = fmt.Sprintf("%d instances are provided by backend %q, which this provider does not have: what it made cannot be removed before backend %q takes over; run a provider that has both, or delete the instances with one that has it",
			provided, previous, name)
	case !allowed:
		refused.reason = infrastructurev1alpha1.ReasonInvalidSpec
		refused.message = fmt.Sprintf("%d instances are provided by backend %q; delete them before backend %q takes over, or annotate the Template with %s to have them created again, which loses what is in them",
			provided, previous, name, backend.AnnotationMigrate(r.Group))
	default:
		return nil
	}
	return refused
}
