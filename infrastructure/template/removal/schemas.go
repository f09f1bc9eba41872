// Package removal removes what Templates do not use any more, and protects what they need until they are gone.
package removal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/template"
)

// prune deletes schemas that no export lists, and that no binding has used during the grace period. If it cannot read the bindings, it deletes
// none, because a binding that was not read may use them.
func (c *Cleaner) prune(ctx context.Context) error {
	var schemas apisv1alpha1.APIResourceSchemaList
	if err := c.Client.List(ctx, &schemas); err != nil {
		return fmt.Errorf("listing schemas: %w", err)
	}
	schemas.Items = slices.DeleteFunc(schemas.Items, func(schema apisv1alpha1.APIResourceSchema) bool { return !template.IsPruned(&schema, c.Group) })
	used, err := template.ListedSchemas(ctx, c.Client)
	if err != nil {
		return err
	}
	previous := 0
	for i := range schemas.Items {
		if !used[schemas.Items[i].Name] {
			previous++
		}
	}
	if previous == 0 {
		return nil
	}
	exports, err := c.exports(ctx)
	if err != nil {
		return err
	}
	if err := c.Instances.Bindings(ctx, exports, func(binding *apisv1alpha2.APIBinding) error {
		for _, bound := range binding.Status.BoundResources {
			used[bound.Schema.Name] = true
		}
		return nil
	}); err != nil {
		return fmt.Errorf("reading which schemas are bound: %w", err)
	}
	var errs []error
	for i := range schemas.Items {
		if err := c.pruneSchema(ctx, &schemas.Items[i], used[schemas.Items[i].Name]); client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("schema %s: %w", schemas.Items[i].Name, err))
		}
	}
	return errors.Join(errs...)
}

// exports returns the exports of the provider. The export of a Catalogue that has never been ready may not exist.
func (c *Cleaner) exports(ctx context.Context) ([]string, error) {
	var catalogues infrastructurev1alpha1.CatalogueList
	if err := c.Client.List(ctx, &catalogues); err != nil {
		return nil, fmt.Errorf("listing catalogues: %w", err)
	}
	names := []string{c.Export}
	for i := range catalogues.Items {
		name := catalogues.Items[i].Spec.Export
		if !controllerutil.ContainsFinalizer(&catalogues.Items[i], template.CatalogueFinalizer(c.Group)) || name == c.Export {
			continue
		}
		if !meta.IsStatusConditionTrue(catalogues.Items[i].Status.Conditions, infrastructurev1alpha1.ConditionReady) {
			err := c.Client.Get(ctx, client.ObjectKey{Name: name}, &apisv1alpha2.APIExport{})
			if apierrors.IsNotFound(err) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("reading APIExport %s: %w", name, err)
			}
		}
		names = append(names, name)
	}
	return names, nil
}

// pruneSchema records since when a schema is unused, and deletes it after the grace period. All its writes fail after a concurrent change.
func (c *Cleaner) pruneSchema(ctx context.Context, schema *apisv1alpha1.APIResourceSchema, used bool) error {
	key := template.AnnotationUnusedSince(c.Group)
	text, noted := schema.Annotations[key]
	if used && !noted {
		return nil
	}
	since, err := time.Parse(time.RFC3339, text)
	if !used && err == nil {
		if time.Since(since) < c.Grace {
			return nil
		}
		return c.Client.Delete(ctx, schema, client.Preconditions{UID: &schema.UID, ResourceVersion: &schema.ResourceVersion})
	}
	patch := client.MergeFromWithOptions(schema.DeepCopy(), client.MergeFromWithOptimisticLock{})
	if used {
		delete(schema.Annotations, key)
	} else {
		metav1.SetMetaDataAnnotation(&schema.ObjectMeta, key, time.Now().UTC().Format(time.RFC3339))
	}
	return c.Client.Patch(ctx, schema, patch)
}
