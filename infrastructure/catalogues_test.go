package infrastructure_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/backends/manifest"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// premium is the export of another catalogue.
const premium = "premium.infrastructure.example.org"

// waitCatalogue waits until a Catalogue is ready, or not for a reason.
func (e *env) waitCatalogue(t *testing.T, name, reason string) {
	t.Helper()
	shardtesting.Eventually(t, name+" to be "+reason, func(ctx context.Context) error {
		got := &infrastructurev1alpha1.Catalogue{}
		if err := e.c.Get(ctx, client.ObjectKey{Name: name}, got); err != nil {
			return err
		}
		if ready := meta.FindStatusCondition(got.Status.Conditions, infrastructurev1alpha1.ConditionReady); ready == nil || ready.Reason != reason {
			return fmt.Errorf("conditions %v", got.Status.Conditions)
		}
		return nil
	})
}

// waitRows waits until a tenant sees exactly these Templates.
func (e *env) waitRows(t *testing.T, want ...string) {
	t.Helper()
	shardtesting.Eventually(t, fmt.Sprintf("%s to see %v", e.tenant, want), func(ctx context.Context) error {
		list, err := e.inTenant(t, "templates").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		var got []string
		for i := range list.Items {
			got = append(got, list.Items[i].GetName())
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			return fmt.Errorf("got %v", got)
		}
		return nil
	})
}

func newVault(name string) *unstructured.Unstructured {
	vault := newInstance(name, "small")
	vault.SetKind("Vault")
	return vault
}

func (e *instancesEnv) label(t *testing.T, name, tier string) {
	t.Helper()
	e.change(t, name, func(t *infrastructurev1alpha1.Template) { metav1.SetMetaDataLabel(&t.ObjectMeta, "tier", tier) })
}

func (e *instancesEnv) testCatalogues(t *testing.T) {
	for name, exported := range map[string]string{"premium": premium, "standard": export} {
		if err := e.c.Create(t.Context(), &infrastructurev1alpha1.Catalogue{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: infrastructurev1alpha1.CatalogueSpec{
			Export: exported, TemplateSelector: metav1.LabelSelector{MatchLabels: map[string]string{"tier": "premium"}}, Binders: []string{"system:authenticated"},
		}}); err != nil {
			t.Fatal(err)
		}
	}
	e.waitCatalogue(t, "premium", infrastructurev1alpha1.ReasonReady)
	e.waitCatalogue(t, "standard", infrastructurev1alpha1.ReasonInvalidSpec)
	if err := e.c.Delete(t.Context(), &infrastructurev1alpha1.Catalogue{ObjectMeta: metav1.ObjectMeta{Name: "standard"}}); err != nil {
		t.Fatal(err)
	}
	e.create(t, newTemplate("vault", "Vault", func(t *infrastructurev1alpha1.Template) {
		t.Labels = map[string]string{"tier": "premium"}
		t.Spec.Backend, t.Spec.BackendConfig = manifest.Name, &runtime.RawExtension{Raw: []byte(strings.ReplaceAll(manifests, "redis-", "vault-"))}
	}))
	if got := e.ready(t, "vault").Status.Registered.Exports; !slices.Equal(got, []string{premium}) {
		t.Errorf("the kind is listed in %v", got)
	}
	gold := e.of(e.shard.NewWorkspace(t, "root", "gold").Spec.Cluster)
	binding := e.shard.Bind(t, gold.tenant, e.provider, premium)
	gold.waitRows(t, "vault")
	e.of(e.tenant).waitRows(t, "redis")
	if _, err := e.of(e.tenant).inTenant(t, "vault").Create(t.Context(), newVault("x"), metav1.CreateOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("creating an instance that is not offered: %v", err)
	}
	if _, err := gold.inTenant(t, "vault").Create(t.Context(), newVault("safe"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	e.waitData(t, gold.tenant, "vault-safe", "small")

	// What is no longer offered refuses new instances, and keeps those that exist until they are deleted.
	e.label(t, "vault", "basic")
	gold.waitRows(t)
	e.of(e.tenant).waitRows(t, "redis", "vault")
	shardtesting.Eventually(t, "new instances to be refused", func(ctx context.Context) error {
		_, err := gold.inTenant(t, "vault").Create(ctx, newVault("late"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "being removed from the catalogue") {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
	if err := gold.inTenant(t, "vault").Delete(t.Context(), "safe", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	e.waitAbsent(t, gold.tenant, "vault-safe")
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
	root := e.shard.Client(t, e.shard.Admin(t))
	if err := root.Delete(shardtesting.In(t.Context(), gold.tenant), binding); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the export to be gone", func(ctx context.Context) error {
		for _, object := range []client.Object{catalogue, &apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Name: premium}}} {
			if err := e.c.Get(ctx, client.ObjectKeyFromObject(object), object); !apierrors.IsNotFound(err) {
				return errors.Join(errors.New("it is there"), err)
			}
		}
		return nil
	})
	vault := newTemplate("vault", "Vault")
	if err := e.c.Delete(t.Context(), vault); err != nil {
		t.Fatal(err)
	}
	e.gone(t, vault)
}
