package catalogue

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	cachev1alpha1 "github.com/atoll-dev/atoll/api/cache/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/template"
	"github.com/atoll-dev/atoll/infrastructure/template/export"
)

// ensureOffer brings up an export, the permission to bind it, and the Templates that it shows. The controller of Templates adds their
// kinds.
func ensureOffer(ctx context.Context, c client.Client, group string, o offer) error {
	if !o.selector.Empty() {
		if err := checkSelectingSupported(ctx, c, o); err != nil {
			return err
		}
	}
	for _, object := range []client.Object{shell(o.export), publishedBy(o), endpoints(o.export)} {
		if err := c.Create(ctx, object); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating %T %s: %w", object, object.GetName(), err)
		}
	}
	if err := ensureSelection(ctx, c, o); err != nil {
		return err
	}
	if err := ensureBinders(ctx, c, o); err != nil {
		return err
	}
	identity, err := waitForIdentity(ctx, c)
	if err != nil {
		return err
	}
	return ensureEntry(ctx, c, group, o, identity)
}

// checkSelectingSupported returns an error if the server would show tenants all Templates. A server that does not know the annotation
// accepts an invalid value of it.
func checkSelectingSupported(ctx context.Context, c client.Client, o offer) error {
	probe := publishedBy(o)
	probe.Name += "-probe"
	probe.Annotations[cachev1alpha1.LabelSelectorAnnotationKey] = "("
	err := c.Create(ctx, probe, client.DryRunAll)
	switch {
	case apierrors.IsInvalid(err):
		return nil
	case err == nil:
		return fmt.Errorf("this server does not support the annotation %s of ClusterCachedResourceEndpointSlices, so that every export would show all templates", cachev1alpha1.LabelSelectorAnnotationKey)
	}
	return fmt.Errorf("asking whether rows of the catalogue can be selected: %w", err)
}

// ensureSelection repairs which Templates an export shows.
func ensureSelection(ctx context.Context, c client.Client, o offer) error {
	wanted, current := publishedBy(o), &cachev1alpha1.ClusterCachedResourceEndpointSlice{}
	if err := c.Get(ctx, client.ObjectKeyFromObject(wanted), current); err != nil {
		return fmt.Errorf("reading the endpoint slice of templates: %w", err)
	}
	if current.Spec.APIExport.Name != o.export || current.Spec.ClusterCachedResource.Name != publication {
		return fmt.Errorf("ClusterCachedResourceEndpointSlice %s is of something else; delete it", current.Name)
	}
	const key = cachev1alpha1.LabelSelectorAnnotationKey
	if current.Annotations[key] == wanted.Annotations[key] {
		return nil
	}
	metav1.SetMetaDataAnnotation(&current.ObjectMeta, key, wanted.Annotations[key])
	if o.selector.Empty() {
		delete(current.Annotations, key)
	}
	if err := c.Update(ctx, current); err != nil {
		return fmt.Errorf("updating the endpoint slice of templates: %w", err)
	}
	return nil
}

// ensureBinders allows groups to bind an export. Without groups, it deletes the binding of the standard export if the provider owns it:
// others may grant the permission in bindings of their own.
func ensureBinders(ctx context.Context, c client.Client, o offer) error {
	if len(o.binders) == 0 && o.slice == publication {
		return revokeBinders(ctx, c, o.export)
	}
	role, wanted := binders(o.export, o.binders)
	for _, object := range []client.Object{role, wanted.DeepCopy()} {
		if err := c.Create(ctx, object); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating %T %s: %w", object, object.GetName(), err)
		}
	}
	current := &rbacv1.ClusterRoleBinding{}
	if err := c.Get(ctx, client.ObjectKeyFromObject(wanted), current); err != nil {
		return fmt.Errorf("reading who may bind %s: %w", o.export, err)
	}
	if equality.Semantic.DeepEqual(current.Subjects, wanted.Subjects) && isManaged(current) {
		return nil
	}
	metav1.SetMetaDataLabel(&current.ObjectMeta, labelManagedBy, managedBy)
	current.Subjects = wanted.Subjects
	if err := c.Update(ctx, current); err != nil {
		return fmt.Errorf("updating who may bind %s: %w", o.export, err)
	}
	return nil
}

// revokeBinders deletes the binding that ensureBinders has created.
func revokeBinders(ctx context.Context, c client.Client, export string) error {
	_, previous := binders(export, nil)
	err := c.Get(ctx, client.ObjectKeyFromObject(previous), previous)
	if apierrors.IsNotFound(err) || err == nil && !isManaged(previous) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading who may bind %s: %w", export, err)
	}
	if err := c.Delete(ctx, previous, client.Preconditions{ResourceVersion: &previous.ResourceVersion}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting the permission of groups to bind %s: %w", export, err)
	}
	return nil
}

// ensureEntry adds Templates and the claims to an export.
func ensureEntry(ctx context.Context, c client.Client, group string, o offer, identity string) error {
	schema, err := publishedSchema(group)
	if err != nil {
		return err
	}
	if err := template.EnsureSchema(ctx, c, group, schema); err != nil {
		return fmt.Errorf("creating the schema of templates: %w", err)
	}
	wanted := entry(group, schema.Name, o.slice, identity)
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		current := &apisv1alpha2.APIExport{}
		if err := c.Get(ctx, client.ObjectKey{Name: o.export}, current); err != nil {
			return fmt.Errorf("reading APIExport %s: %w", o.export, err)
		}
		listed, claimed := export.SetEntry(&current.Spec.Resources, wanted), setClaims(&current.Spec.PermissionClaims, claims(group))
		if !listed && !claimed {
			return nil
		}
		if err := c.Update(ctx, current); err != nil {
			return fmt.Errorf("listing templates in APIExport %s: %w", o.export, err)
		}
		return nil
	})
}
