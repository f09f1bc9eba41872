package catalogue

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "github.com/atoll-dev/atoll/api/cache/v1alpha1"
)

// pollInterval is how often Ensure reads objects that servers complete.
const pollInterval = 500 * time.Millisecond

// Options configure a catalogue.
type Options struct {
	// Group is the API group of the provider; Export is the name of its APIExport.
	Group, Export string
	// Binders is the group of users who may bind the export, such as system:authenticated; empty means none.
	Binders string
	// Selector selects the Templates of the export; nil selects all.
	Selector labels.Selector
}

// offer describes an export, the Templates that it shows, and who may bind it.
type offer struct {
	export, slice string
	selector      labels.Selector
	binders       []string
}

// standard returns the offer of the export that the flags configure.
func (o *Options) standard() offer {
	standard := offer{export: o.Export, slice: publication, selector: o.Selector}
	if standard.selector == nil {
		standard.selector = labels.Everything()
	}
	if o.Binders != "" {
		standard.binders = []string{o.Binders}
	}
	return standard
}

// Ensure brings up the provider's workspace. It is idempotent, and writes only what has changed. c is an uncached client of that
// workspace. Ensure waits for servers until the context ends.
func Ensure(ctx context.Context, c client.Client, o Options) error {
	for _, kind := range []string{resource, "catalogues"} {
		if err := ensureDefinition(ctx, c, kind, o.Group); err != nil {
			return err
		}
	}
	if err := checkHidingSupported(ctx, c, o.Group); err != nil {
		return err
	}
	if err := c.Create(ctx, cached(o.Group)); client.IgnoreAlreadyExists(err) != nil {
		return fmt.Errorf("creating the publication of templates: %w", err)
	}
	if err := ensurePublication(ctx, c, o.Group); err != nil {
		return err
	}
	return ensureOffer(ctx, c, o.Group, o.standard())
}

// ensureDefinition creates or updates the CRD of a kind of the provider, and waits until it is established.
func ensureDefinition(ctx context.Context, c client.Client, kind, group string) error {
	wanted, err := definition(kind, group)
	if err != nil {
		return err
	}
	current := &apiextensionsv1.CustomResourceDefinition{}
	err = c.Get(ctx, client.ObjectKeyFromObject(wanted), current)
	switch {
	case apierrors.IsNotFound(err):
		if err := c.Create(ctx, wanted); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating the definition of %s: %w", kind, err)
		}
	case err != nil:
		return fmt.Errorf("reading the definition of %s: %w", kind, err)
	default:
		wanted.Spec.Conversion = current.Spec.Conversion
		if !equality.Semantic.DeepEqual(current.Spec, wanted.Spec) {
			current.Spec = wanted.Spec
			if err := c.Update(ctx, current); err != nil {
				return fmt.Errorf("updating the definition of %s: %w", kind, err)
			}
		}
	}
	return poll(ctx, "the definition of "+kind+" to be established", func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, client.ObjectKeyFromObject(wanted), current)
		return err == nil && apihelpers.IsCRDConditionTrue(current, apiextensionsv1.Established), client.IgnoreNotFound(err)
	})
}

// checkHidingSupported returns an error if the server would show tenants fields that only backends may read. A server that does not know
// the annotation accepts an invalid value of it.
func checkHidingSupported(ctx context.Context, c client.Client, group string) error {
	probe := cached(group)
	probe.Name += "-probe"
	probe.Annotations[cachev1alpha1.OmittedFieldsAnnotationKey] = "."
	err := c.Create(ctx, probe, client.DryRunAll)
	switch {
	case apierrors.IsInvalid(err):
		return nil
	case err == nil:
		return fmt.Errorf("this server does not support the annotation %s of ClusterCachedResources, so that the catalogue would show tenants the configuration of backends; it is not published",
			cachev1alpha1.OmittedFieldsAnnotationKey)
	}
	return fmt.Errorf("asking whether fields of the catalogue can be hidden (it needs the feature gate CacheAPIs): %w", err)
}

// ensurePublication repairs the selector and the hidden fields of the publication.
func ensurePublication(ctx context.Context, c client.Client, group string) error {
	wanted, current := cached(group), &cachev1alpha1.ClusterCachedResource{}
	if err := c.Get(ctx, client.ObjectKeyFromObject(wanted), current); err != nil {
		return fmt.Errorf("reading the publication of templates: %w", err)
	}
	repaired := current.DeepCopy()
	metav1.SetMetaDataAnnotation(&repaired.ObjectMeta, cachev1alpha1.OmittedFieldsAnnotationKey, hiddenFields)
	repaired.Spec.GroupVersionResource, repaired.Spec.LabelSelector = wanted.Spec.GroupVersionResource, wanted.Spec.LabelSelector
	if equality.Semantic.DeepEqual(current, repaired) {
		return nil
	}
	if err := c.Update(ctx, repaired); err != nil {
		return fmt.Errorf("repairing the publication of templates: %w", err)
	}
	return nil
}

// waitForIdentity waits until the publication has an identity, and returns it.
func waitForIdentity(ctx context.Context, c client.Client) (string, error) {
	current := &cachev1alpha1.ClusterCachedResource{}
	err := poll(ctx, "the identity of the publication of templates", func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, client.ObjectKey{Name: publication}, current)
		return current.Status.IdentityHash != "", err
	})
	return current.Status.IdentityHash, err
}

// poll calls condition until it holds or the context ends.
func poll(ctx context.Context, what string, condition wait.ConditionWithContextFunc) error {
	if err := wait.PollUntilContextCancel(ctx, pollInterval, true, condition); err != nil {
		return fmt.Errorf("waiting for %s: %w", what, err)
	}
	return nil
}
