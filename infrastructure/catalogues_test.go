package infrastructure_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/backends/manifest"
	"github.com/atoll-dev/atoll/infrastructure/template"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// premium is the export of a Catalogue.
const premium = "premium.infrastructure.example.org"

// createCatalogue creates the Catalogue of premium, and waits until it is ready.
func (e *instancesEnv) createCatalogue(t *testing.T) {
	t.Helper()
	if err := e.c.Create(t.Context(), &infrastructurev1alpha1.Catalogue{ObjectMeta: metav1.ObjectMeta{Name: "premium"}, Spec: infrastructurev1alpha1.CatalogueSpec{
		Export: premium, TemplateSelector: metav1.LabelSelector{MatchLabels: map[string]string{"tier": "premium"}}, Binders: []string{"system:authenticated"},
	}}); err != nil {
		t.Fatal(err)
	}
	e.waitCatalogue(t, infrastructurev1alpha1.ReasonReady)
}

// waitCatalogue waits until the condition Ready of the Catalogue has a reason, and returns it.
func (e *instancesEnv) waitCatalogue(t *testing.T, reason string) *metav1.Condition {
	t.Helper()
	var ready *metav1.Condition
	shardtesting.Eventually(t, "the catalogue to be "+reason, func(ctx context.Context) error {
		c := &infrastructurev1alpha1.Catalogue{}
		if err := e.c.Get(ctx, client.ObjectKey{Name: "premium"}, c); err != nil {
			return err
		}
		if ready = meta.FindStatusCondition(c.Status.Conditions, infrastructurev1alpha1.ConditionReady); ready == nil || ready.Reason != reason || ready.ObservedGeneration != c.Generation {
			return fmt.Errorf("conditions %+v", c.Status.Conditions)
		}
		return nil
	})
	return ready
}

func (e *instancesEnv) changeCatalogue(t *testing.T, change func(*infrastructurev1alpha1.Catalogue)) {
	t.Helper()
	shardtesting.Eventually(t, "changing the catalogue", func(ctx context.Context) error {
		c := &infrastructurev1alpha1.Catalogue{}
		if err := e.c.Get(ctx, client.ObjectKey{Name: "premium"}, c); err != nil {
			return err
		}
		change(c)
		return e.c.Update(ctx, c)
	})
}

// offer creates a Template with a label, and waits until it is ready.
func (e *instancesEnv) offer(t *testing.T, name, kind, tier string) *infrastructurev1alpha1.Template {
	t.Helper()
	e.create(t, newTemplate(name, kind, func(t *infrastructurev1alpha1.Template) {
		t.Labels = map[string]string{"tier": tier}
		t.Spec.Backend, t.Spec.BackendConfig = manifest.Name, &runtime.RawExtension{Raw: []byte(manifests)}
	}))
	return e.ready(t, name)
}

// provisionVault creates an instance of the Template vault.
func (e *instancesEnv) provisionVault(t *testing.T, tenant, name string) {
	t.Helper()
	vault := newInstance(name, "small")
	vault.SetKind("Vault")
	shardtesting.Eventually(t, "the kind of the catalogue", func(ctx context.Context) error {
		_, err := e.of(tenant).inTenant(t, "vault").Create(ctx, vault, metav1.CreateOptions{})
		return client.IgnoreAlreadyExists(err)
	})
	e.waitData(t, tenant, "redis-"+name, "small")
}

func (e *instancesEnv) resizeVault(t *testing.T, tenant, size string) {
	t.Helper()
	patch := `{"spec":{"size":"` + size + `"}}`
	if _, err := e.of(tenant).inTenant(t, "vault").Patch(t.Context(), "safe", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	e.waitData(t, tenant, "redis-safe", size)
}

// TestCatalogueThatIsNotReady makes a Catalogue with instances invalid: the instances are provided as before, and removed with their Template.
func TestCatalogueThatIsNotReady(t *testing.T) {
	e := newInstancesEnv(t)
	e.createCatalogue(t)
	e.offer(t, "vault", "Vault", "premium")
	gold := e.shard.NewWorkspace(t, "root", "gold").Spec.Cluster
	e.shard.Bind(t, gold, e.provider, premium)
	e.provisionVault(t, gold, "safe")

	deleted := &apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Name: premium}}
	if err := e.c.Delete(t.Context(), deleted); err != nil {
		t.Fatal(err)
	}
	if message := e.waitCatalogue(t, infrastructurev1alpha1.ReasonAPIExportError).Message; !strings.Contains(message, template.InUseFinalizer(group)) {
		t.Errorf("the message does not say what to do: %s", message)
	}
	e.resizeVault(t, gold, "large")
	e.removeFinalizers(t, premium)
	e.waitCatalogue(t, infrastructurev1alpha1.ReasonReady)
	e.ready(t, "vault")
	e.resizeVault(t, gold, "small")

	e.changeCatalogue(t, func(c *infrastructurev1alpha1.Catalogue) {
		c.Spec.TemplateSelector = metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: "Near"}}}
	})
	e.waitCatalogue(t, infrastructurev1alpha1.ReasonInvalidSpec)
	e.change(t, "vault", func(t *infrastructurev1alpha1.Template) { t.Spec.Description = "Changed" })
	if got := e.ready(t, "vault").Status.Registered.Exports; !slices.Equal(got, []string{premium}) {
		t.Errorf("the kind is listed in %v", got)
	}
	e.resizeVault(t, gold, "large")
	removed := e.ready(t, "vault")
	if err := e.c.Delete(t.Context(), removed); err != nil {
		t.Fatal(err)
	}
	e.gone(t, removed)
	e.waitAbsent(t, gold, "redis-safe")
	if _, err := e.of(gold).inTenant(t, "vault").Get(t.Context(), "safe", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the instance: %v", err)
	}
}

// removeFinalizers removes the finalizer from an export that is being deleted, and waits until it is gone or replaced by a new one.
func (e *instancesEnv) removeFinalizers(t *testing.T, export string) {
	t.Helper()
	finalizer := template.InUseFinalizer(group)
	shardtesting.Eventually(t, "the export to be gone", func(ctx context.Context) error {
		current := &apisv1alpha2.APIExport{}
		err := e.c.Get(ctx, client.ObjectKey{Name: export}, current)
		if apierrors.IsNotFound(err) || err == nil && current.DeletionTimestamp == nil {
			return nil
		}
		if err == nil && slices.Contains(current.Finalizers, finalizer) {
			current.Finalizers = slices.DeleteFunc(current.Finalizers, func(f string) bool { return f == finalizer })
			err = e.c.Update(ctx, current)
		}
		if err == nil {
			err = fmt.Errorf("finalizers %v", current.Finalizers)
		}
		return err
	})
}
