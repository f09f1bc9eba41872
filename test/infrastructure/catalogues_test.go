package infrastructure

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/backends/manifest"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/installation"
)

// waitCatalogue waits until a Catalogue is ready, or not for a reason.
func (e *env) waitCatalogue(t *testing.T, name, reason string) {
	t.Helper()
	shardtesting.Eventually(t, name+" to be "+reason, func(ctx context.Context) error {
		got := &infrastructurev1alpha1.Catalogue{}
		if err := e.c.Get(ctx, client.ObjectKey{Name: name}, got); err != nil {
			return err
		}
		if ready := meta.FindStatusCondition(got.Status.Conditions, infrastructurev1alpha1.ConditionReady); ready == nil || ready.Reason != reason || got.Status.ObservedGeneration != got.Generation {
			return fmt.Errorf("generation %d, status %+v", got.Generation, got.Status)
		}
		return nil
	})
}

func (e *env) newVault(name string) *unstructured.Unstructured {
	vault := e.newInstance(name, "small")
	vault.SetKind("Vault")
	return vault
}

// TestCatalogues offers some Templates to some tenants (Q3): a tenant on one shard has bound the standard catalogue, one on another shard
// a catalogue of its own.
func TestCatalogues(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	var err error
	if e.selector, err = labels.Parse("tier!=premium"); err != nil {
		t.Fatal(err)
	}
	e.run(t, e.workspace, e.backends(t)...)
	e.publish(t, e.newTemplate(manifest.Name, manifests))
	premium := "premium." + e.group
	for name, export := range map[string]string{"premium": premium, "standard": e.group} {
		if err := e.c.Create(t.Context(), &infrastructurev1alpha1.Catalogue{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: infrastructurev1alpha1.CatalogueSpec{
			Export: export, TemplateSelector: metav1.LabelSelector{MatchLabels: map[string]string{"tier": "premium"}}, Binders: []string{"system:authenticated"},
		}}); err != nil {
			t.Fatal(err)
		}
	}
	e.waitCatalogue(t, "premium", infrastructurev1alpha1.ReasonReady)
	e.waitCatalogue(t, "standard", infrastructurev1alpha1.ReasonInvalidSpec)
	if err := e.c.Delete(t.Context(), &infrastructurev1alpha1.Catalogue{ObjectMeta: metav1.ObjectMeta{Name: "standard"}}); err != nil {
		t.Fatal(err)
	}
	vault := e.newTemplateOf("Vault", manifest.Name, manifests)
	vault.Labels = map[string]string{"tier": "premium"}
	if err := e.c.Create(t.Context(), vault.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the kind to be listed", func(context.Context) error {
		if got := e.get(t, "vault").Status.Registered.Exports; !slices.Equal(got, []string{premium}) {
			return fmt.Errorf("it is listed in %v", got)
		}
		return nil
	})
	standard, gold := e.newConsumer(t, installation.Alpha), e.newConsumerOf(t, installation.Beta, premium)
	gold.instances = gold.resource("v1alpha1", "vaults")
	gold.waitRows(t, "vault")
	standard.waitRows(t, "sample")
	if _, err := standard.resource("v1alpha1", "vaults").Create(t.Context(), e.newVault("x"), metav1.CreateOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("creating an instance that is not offered: %v", err)
	}
	if _, err := gold.instances.Create(t.Context(), e.newVault("safe"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	gold.waitSize(t, "safe", "small")

	// A kind that is not offered any more refuses new instances, and keeps existing ones until they are deleted.
	e.changeTemplate(t, "vault", func(t *infrastructurev1alpha1.Template) { metav1.SetMetaDataLabel(&t.ObjectMeta, "tier", "basic") })
	gold.waitRows(t)
	standard.waitRows(t, "sample", "vault")
	shardtesting.Eventually(t, "new instances to be refused", func(ctx context.Context) error {
		_, err := gold.instances.Create(ctx, e.newVault("late"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "being removed from the catalogue") {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
	gold.waitSize(t, "safe", "small")
	gold.remove(t, "safe")
	e.expectMade(t, gold, 0)
	shardtesting.Eventually(t, "the kind to leave the export", func(ctx context.Context) error {
		exported := &apisv1alpha2.APIExport{}
		if err := e.c.Get(ctx, client.ObjectKey{Name: premium}, exported); err != nil {
			return err
		}
		if len(exported.Spec.Resources) != 1 {
			return fmt.Errorf("it lists %v", exported.Spec.Resources)
		}
		return nil
	})

	// A catalogue stays as long as it is bound.
	catalogue := &infrastructurev1alpha1.Catalogue{ObjectMeta: metav1.ObjectMeta{Name: "premium"}}
	if err := e.c.Delete(t.Context(), catalogue); err != nil {
		t.Fatal(err)
	}
	e.waitCatalogue(t, "premium", infrastructurev1alpha1.ReasonInUse)
	if err := newClient(t, gold.Config, e.group).Delete(t.Context(), &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{Name: "infrastructure"}}); err != nil {
		t.Fatal(err)
	}
	e.waitGone(t, catalogue)
	e.waitGone(t, &apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Name: premium}})
}
