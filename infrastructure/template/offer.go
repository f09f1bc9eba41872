package template

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/template/export"
)

// offer describes an export and the Templates that it lists.
type offer struct {
	export   string
	selector labels.Selector // nil: the current entries stay, and no others are added
	isEnding bool            // its Catalogue is being deleted
}

// offers returns the standard export and those of Catalogues, sorted by name. The export of a Catalogue that is not ready may have
// instances, and continues to offer its current entries. The export of a Catalogue that is being deleted offers none, and may have instances
// until it is gone.
func (r *Reconciler) offers(ctx context.Context) ([]offer, error) {
	standard := offer{export: r.Export, selector: r.Selector}
	if standard.selector == nil {
		standard.selector = labels.Everything()
	}
	var catalogues infrastructurev1alpha1.CatalogueList
	if err := r.Client.List(ctx, &catalogues); err != nil {
		return nil, fmt.Errorf("listing catalogues: %w", err)
	}
	offers := []offer{standard}
	for i := range catalogues.Items {
		c := &catalogues.Items[i]
		if !controllerutil.ContainsFinalizer(c, CatalogueFinalizer(r.Group)) || c.Spec.Export == r.Export {
			continue // it does not own an export
		}
		offers = append(offers, offer{c.Spec.Export, selectorOf(c), !c.DeletionTimestamp.IsZero()})
	}
	slices.SortFunc(offers[1:], func(a, b offer) int { return strings.Compare(a.export, b.export) })
	return offers, nil
}

// selectorOf returns the selector of the offer of a Catalogue.
func selectorOf(c *infrastructurev1alpha1.Catalogue) labels.Selector {
	if !c.DeletionTimestamp.IsZero() {
		return labels.Nothing()
	}
	selector, err := metav1.LabelSelectorAsSelector(&c.Spec.TemplateSelector)
	if err != nil || !meta.IsStatusConditionTrue(c.Status.Conditions, infrastructurev1alpha1.ConditionReady) {
		return nil
	}
	return selector
}

// listIn lists the kind of a Template in all exports that offer it. In other exports that still list it, the kind refuses new instances, and
// listIn removes the entry when there are none. A failure of one export does not stop the others.
func (r *Reconciler) listIn(ctx context.Context, s *scope) error {
	offers, err := r.offers(ctx)
	if err != nil {
		return err
	}
	var errs []error
	var exports []string
	for _, o := range offers {
		listed, err := r.listInOffer(ctx, s, o)
		if err != nil {
			errs = append(errs, err)
			listed = slices.Contains(s.template.Status.Registered.Exports, o.export) // as before
		}
		if listed {
			exports = append(exports, o.export)
		}
	}
	slices.Sort(exports)
	s.template.Status.Registered.Exports, s.template.Status.Registered.SchemaInAPIExport = exports, len(exports) > 0
	return errors.Join(errs...)
}

// listInOffer implements listIn for one export. It reports whether the export lists the kind.
func (r *Reconciler) listInOffer(ctx context.Context, s *scope, o offer) (listed bool, err error) {
	names, registered := s.template.Spec.InstanceCRD, slices.Contains(s.template.Status.Registered.Exports, o.export)
	current := &apisv1alpha2.APIExport{}
	err = r.Client.Get(ctx, client.ObjectKey{Name: o.export}, current)
	if apierrors.IsNotFound(err) && (o.isEnding || o.selector == nil && !registered) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading APIExport %s: %w", o.export, err)
	}
	if o.isEnding || !current.DeletionTimestamp.IsZero() {
		if ending, err := r.isWorkspaceDeleted(ctx); err != nil || ending { // nothing changes until the Template is deleted, too
			return registered, err
		}
	}
	isListed := slices.ContainsFunc(current.Spec.Resources, export.IsEntryOf(names.Resource, names.Group))
	isOffered := registered || isListed
	if o.selector != nil {
		isOffered = o.selector.Matches(labels.Set(s.template.Labels))
	}
	if isOffered && s.template.DeletionTimestamp.IsZero() {
		if !current.DeletionTimestamp.IsZero() {
			return true, errors.New(DeletedMessage(current, r.Group))
		}
		return true, r.list(ctx, current, export.EntryOf(s.template, s.schema))
	}
	if !isListed {
		return false, nil
	}
	refusing, err := r.createSchema(ctx, s, Closed(s.wanted))
	if err != nil {
		return true, err
	}
	if err := r.list(ctx, current, export.EntryOf(s.template, refusing)); err != nil || !s.template.DeletionTimestamp.IsZero() {
		return true, err
	}
	used, err := r.isUsed(ctx, s.template, o.export, refusing)
	if err != nil || used {
		s.recheck = true
		return true, err
	}
	return false, r.exports.Change(ctx, r.Client, r.Live, o.export, export.Unlisted(names.Resource, names.Group))
}

// DeletedMessage explains what the user can do about an export that has been deleted, and whose finalizer blocks the deletion while Templates
// exist. An export that is created again has the identity in the Secret of its name, which determines where instances are stored.
func DeletedMessage(export *apisv1alpha2.APIExport, group string) string {
	namespace, name := apisv1alpha2.IdentitySecretNamespace, export.Name
	if identity := export.Spec.Identity; identity != nil && identity.SecretRef != nil {
		namespace, name = identity.SecretRef.Namespace, identity.SecretRef.Name
	}
	if namespace != apisv1alpha2.IdentitySecretNamespace || name != export.Name {
		return fmt.Sprintf("APIExport %s is being deleted: delete all Templates that it offers, then it is created again; its identity is another one unless you create it with that of Secret %s/%s before", export.Name, namespace, name)
	}
	return fmt.Sprintf("APIExport %s is being deleted; to keep the instances, see that Secret %s/%s exists, which has its identity, and remove the finalizer %s of the APIExport: it is created again within five minutes; "+
		"to remove them, delete all Templates that it offers: then it is created again, too", export.Name, namespace, name, InUseFinalizer(group))
}

// list sets an entry of an export, unless the export already has it. If the cache lacks a concurrent change, the event of that change
// requeues the Template.
func (r *Reconciler) list(ctx context.Context, current *apisv1alpha2.APIExport, entry apisv1alpha2.ResourceSchema) error {
	entries := slices.Clone(current.Spec.Resources)
	if !export.SetEntry(&entries, entry) {
		return nil
	}
	return r.exports.Change(ctx, r.Client, r.Live, current.Name, export.Set(entry))
}

// isUsed reports whether a kind whose schema refuses new instances has instances through an export, or may still get some.
func (r *Reconciler) isUsed(ctx context.Context, t *infrastructurev1alpha1.Template, export string, refusing *apisv1alpha1.APIResourceSchema) (bool, error) {
	behind, err := r.behind(ctx, t, []string{export}, refusing.Name)
	if err != nil || behind > 0 {
		return true, err
	}
	there := t.DeepCopy()
	there.Status.Registered.Exports = []string{export}
	count, err := r.Instances.Count(ctx, there)
	return count > 0, err
}

// behind returns how many bindings of exports have another schema of a kind than the given one. It ignores bindings that are being deleted:
// they never get another schema, and tenants may block their deletion.
func (r *Reconciler) behind(ctx context.Context, t *infrastructurev1alpha1.Template, exports []string, schema string) (int, error) {
	behind := 0
	err := r.Instances.Bindings(ctx, exports, func(binding *apisv1alpha2.APIBinding) error {
		for _, bound := range binding.Status.BoundResources {
			if bound.Resource == t.Spec.InstanceCRD.Resource && bound.Group == r.Group && bound.Schema.Name != schema && binding.DeletionTimestamp.IsZero() {
				behind++
			}
		}
		return nil
	})
	return behind, err
}
