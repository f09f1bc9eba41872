package seed

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/template"
)

// Seeder creates, updates and deletes the shipped Templates in the provider's workspace.
type Seeder struct {
	// Client is an uncached client of the provider's workspace.
	Client client.Client
	// Group is the API group of the provider.
	Group string
	// Templates are the Templates that should exist.
	Templates []infrastructurev1alpha1.Template
	Instances template.Instances
	Log       logr.Logger
}

// Label returns the label key of Templates that were created from a shipped one. Its value is "true".
func Label(group string) string { return group + "/shipped" }

// AnnotationHash returns the annotation key for the hash of the shipped spec.
func AnnotationHash(group string) string { return group + "/shipped-hash" }

// Enabled returns the Templates that a list selects, in the syntax of kube-controller-manager's --controllers: "*" for all, a name for
// one, and "-" with a name for all but that one.
func Enabled(templates []infrastructurev1alpha1.Template, list []string) []infrastructurev1alpha1.Template {
	return slices.DeleteFunc(slices.Clone(templates), func(t infrastructurev1alpha1.Template) bool {
		selected := slices.Contains(list, t.Name) || slices.Contains(list, "*")
		return !selected || slices.Contains(list, "-"+t.Name)
	})
}

// Ensure creates missing shipped Templates, updates unedited ones, and deletes those that are not shipped, unedited, and without
// instances. A failure of one does not stop the others. It writes nothing if nothing has changed.
func (s *Seeder) Ensure(ctx context.Context) error {
	var errs []error
	wanted := map[string]bool{}
	for i := range s.Templates {
		wanted[s.Templates[i].Name] = true
		if err := s.ensure(ctx, &s.Templates[i]); err != nil {
			errs = append(errs, fmt.Errorf("shipped template %s: %w", s.Templates[i].Name, err))
		}
	}
	var existing infrastructurev1alpha1.TemplateList
	if err := s.Client.List(ctx, &existing, client.MatchingLabels{Label(s.Group): "true"}); err != nil {
		return errors.Join(append(errs, fmt.Errorf("listing shipped templates: %w", err))...)
	}
	for i := range existing.Items {
		if t := &existing.Items[i]; !wanted[t.Name] && t.DeletionTimestamp.IsZero() {
			if err := s.retire(ctx, t); err != nil {
				errs = append(errs, fmt.Errorf("template %s, which is no longer shipped: %w", t.Name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// ensure creates or updates one Template.
func (s *Seeder) ensure(ctx context.Context, shipped *infrastructurev1alpha1.Template) error {
	sum, err := hash(&shipped.Spec)
	if err != nil {
		return err
	}
	current := &infrastructurev1alpha1.Template{}
	err = s.Client.Get(ctx, client.ObjectKeyFromObject(shipped), current)
	if apierrors.IsNotFound(err) {
		created := shipped.DeepCopy()
		metav1.SetMetaDataLabel(&created.ObjectMeta, Label(s.Group), "true")
		metav1.SetMetaDataAnnotation(&created.ObjectMeta, AnnotationHash(s.Group), sum)
		if err := s.Client.Create(ctx, created); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating: %w", err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading: %w", err)
	}
	pristine, err := s.isPristine(current)
	if err != nil || !pristine || current.Annotations[AnnotationHash(s.Group)] == sum {
		return err
	}
	current.Spec = *shipped.Spec.DeepCopy()
	metav1.SetMetaDataAnnotation(&current.ObjectMeta, AnnotationHash(s.Group), sum)
	if err := s.Client.Update(ctx, current); err != nil {
		return fmt.Errorf("updating: %w", err)
	}
	s.Log.Info("Updated a shipped template", "template", current.Name)
	return nil
}

// isPristine reports whether a Template is unedited: it has the label, its spec has the shipped hash, and it is not being deleted.
func (s *Seeder) isPristine(t *infrastructurev1alpha1.Template) (bool, error) {
	sum, err := hash(&t.Spec)
	return t.Labels[Label(s.Group)] == "true" && t.Annotations[AnnotationHash(s.Group)] == sum && t.DeletionTimestamp.IsZero(), err
}

// retire deletes an unedited Template that has no instances.
func (s *Seeder) retire(ctx context.Context, t *infrastructurev1alpha1.Template) error {
	pristine, err := s.isPristine(t)
	if err != nil || !pristine {
		return err
	}
	if t.Status.Registered.SchemaInAPIExport {
		count, err := s.Instances.Count(ctx, t)
		if err != nil {
			return fmt.Errorf("counting instances: %w", err)
		}
		if count > 0 {
			return nil
		}
	}
	err = s.Client.Delete(ctx, t, client.Preconditions{UID: &t.UID, ResourceVersion: &t.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting: %w", err)
	}
	s.Log.Info("Deleted a template that is no longer shipped", "template", t.Name)
	return nil
}
