package infrastructure_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// inWorkspace returns a client of a workspace.
func (e *env) inWorkspace(t *testing.T, cluster string) client.Client {
	t.Helper()
	c, err := client.New(shardtesting.At(e.shard.Admin(t), cluster), client.Options{Scheme: infrastructure.NewScheme(group)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// answerClaims makes a tenant accept or reject the claims of the export, as proposed by the export unless answer changes that.
func (e *env) answerClaims(t *testing.T, tenant string, state apisv1alpha2.AcceptablePermissionClaimState, answer ...func(*apisv1alpha2.AcceptablePermissionClaim)) {
	t.Helper()
	exported := &apisv1alpha2.APIExport{}
	if err := e.c.Get(t.Context(), client.ObjectKey{Name: export}, exported); err != nil {
		t.Fatal(err)
	}
	c := e.inWorkspace(t, tenant)
	shardtesting.Eventually(t, "the claims to be answered", func(ctx context.Context) error {
		var bindings apisv1alpha2.APIBindingList
		if err := c.List(ctx, &bindings); err != nil {
			return err
		}
		for i := range bindings.Items {
			binding := &bindings.Items[i]
			if binding.Spec.Reference.Export == nil || binding.Spec.Reference.Export.Name != export {
				continue
			}
			if len(binding.Spec.PermissionClaims) > 0 { // selectors are immutable
				binding.Spec.PermissionClaims = nil
				if err := c.Update(ctx, binding); err != nil {
					return err
				}
			}
			for _, claim := range exported.Spec.PermissionClaims {
				answered := apisv1alpha2.AcceptablePermissionClaim{PermissionClaim: claim, Selector: *claim.DefaultSelector, State: state}
				answered.DefaultSelector = nil
				for _, change := range answer {
					change(&answered)
				}
				binding.Spec.PermissionClaims = append(binding.Spec.PermissionClaims, answered)
			}
			return c.Update(ctx, binding)
		}
		return errors.New("there is no binding")
	})
}

// waitConnection waits until the condition of the connection has a reason, and returns the instance.
func (e *instancesEnv) waitConnection(t *testing.T, tenant, name, reason string) *unstructured.Unstructured {
	t.Helper()
	var got *unstructured.Unstructured
	shardtesting.Eventually(t, fmt.Sprintf("the connection of %s to be %s", name, reason), func(ctx context.Context) (err error) {
		if got, err = e.of(tenant).inTenant(t, "redis").Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		conditions, _, _ := unstructured.NestedSlice(got.Object, "status", "conditions")
		for _, condition := range conditions {
			fields := condition.(map[string]any)
			if fields["type"] == "ConnectionAvailable" && fields["reason"] == reason {
				return nil
			}
		}
		return fmt.Errorf("conditions %v", conditions)
	})
	return got
}

func (e *instancesEnv) waitSecret(t *testing.T, tenant, name string, want map[string]string) *corev1.Secret {
	t.Helper()
	found := &corev1.Secret{}
	shardtesting.Eventually(t, "the Secret "+name, func(ctx context.Context) error {
		found = &corev1.Secret{}
		if err := e.inWorkspace(t, tenant).Get(ctx, client.ObjectKey{Namespace: "default", Name: name}, found); err != nil {
			return err
		}
		got := map[string]string{}
		for key, value := range found.Data {
			got[key] = string(value)
		}
		if !maps.Equal(got, want) {
			return fmt.Errorf("it has %v", got)
		}
		return nil
	})
	return found
}

func (e *instancesEnv) waitSecretGone(t *testing.T, tenant, name string) {
	t.Helper()
	shardtesting.Eventually(t, "the Secret "+name+" to be gone", func(ctx context.Context) error {
		if err := e.inWorkspace(t, tenant).Get(ctx, client.ObjectKey{Namespace: "default", Name: name}, &corev1.Secret{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
}

func (e *instancesEnv) testConnection(t *testing.T) {
	// Not accepted: the instance is ready, and its condition explains what the tenant can do.
	refused := e.waitConnection(t, e.tenant, "mine", "ClaimNotAccepted")
	if phase, _, _ := unstructured.NestedString(refused.Object, "status", "phase"); phase != string(infrastructurev1alpha1.PhaseReady) {
		t.Errorf("the phase is %s", phase)
	}
	c := e.inWorkspace(t, e.tenant)
	private := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "taken-redis"}, StringData: map[string]string{"own": "private"}}
	if err := c.Create(t.Context(), private); err != nil {
		t.Fatal(err)
	}

	e.answerClaims(t, e.tenant, apisv1alpha2.ClaimAccepted)
	small := map[string]string{"uri": "redis://confidential@mine", "size": "small"}
	secret := e.waitSecret(t, e.tenant, "mine-redis", small)
	connected := e.waitConnection(t, e.tenant, "mine", "Available")
	if got, _, _ := unstructured.NestedStringMap(connected.Object, "status", "connectionSecret"); !maps.Equal(got, map[string]string{"namespace": "default", "name": "mine-redis"}) {
		t.Errorf("the status has %v", got)
	}
	if text, err := connected.MarshalJSON(); err != nil || strings.Contains(string(text), "confidential") {
		t.Errorf("the instance has a value of its connection: %s, %v", text, err)
	}
	if managers := secret.ManagedFields; len(managers) != 1 || managers[0].Manager != "infrastructure-provider" {
		t.Errorf("the managers of the Secret are %v", managers)
	}

	// The provider repairs changes of the tenant.
	for _, patch := range []string{`{"data":{"uri":null,"more":"eA=="}}`, `{"metadata":{"labels":{"` + group + `/instance":null}}}`} {
		if err := c.Patch(t.Context(), secret.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
			t.Fatal(err)
		}
		shardtesting.Eventually(t, "the Secret to be repaired after "+patch, func(ctx context.Context) error {
			if got := e.waitSecret(t, e.tenant, "mine-redis", small); got.Labels[group+"/instance"] != "mine" {
				return fmt.Errorf("labels %v", got.Labels)
			}
			return nil
		})
	}
	if err := c.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	if again := e.waitSecret(t, e.tenant, "mine-redis", small); again.UID == secret.UID {
		t.Error("the Secret was not deleted")
	}

	// The Secret is updated with the instance, and nothing is written without a change.
	e.resize(t, e.tenant, "large")
	e.waitSecret(t, e.tenant, "mine-redis", map[string]string{"uri": "redis://confidential@mine", "size": "large"})
	e.resize(t, e.tenant, "small")
	e.waitSecret(t, e.tenant, "mine-redis", small)
	e.waitAbsent(t, e.tenant, "redis-mine-extra")
	e.waitPhase(t, e.tenant, "mine", infrastructurev1alpha1.PhaseReady)
	revision := e.shard.Revision(t)
	patch := `{"spec":{"name":"renamed"}}`
	if _, err := e.of(e.tenant).inTenant(t, "redis").Patch(t.Context(), "mine", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	e.waitPhase(t, e.tenant, "mine", infrastructurev1alpha1.PhaseReady)
	for _, write := range e.shard.Writes(t, revision) {
		if strings.Contains(write.Key, "/secrets/") {
			t.Errorf("%s was written", write.Key)
		}
	}

	// The provider does not change Secrets that do not belong to the instance.
	e.provision(t, e.tenant, "taken", "small")
	taken := e.waitConnection(t, e.tenant, "taken", "SecretExists")
	if _, found, _ := unstructured.NestedMap(taken.Object, "status", "connectionSecret"); found {
		t.Error("the status names a Secret that is not the instance's")
	}
	e.waitSecret(t, e.tenant, "taken-redis", map[string]string{"own": "private"})
	if err := e.of(e.tenant).inTenant(t, "redis").Delete(t.Context(), "taken", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	// A tenant may accept a wider selector, and later reject the claim.
	e.answerClaims(t, e.second, apisv1alpha2.ClaimAccepted, func(claim *apisv1alpha2.AcceptablePermissionClaim) {
		claim.Selector = apisv1alpha2.PermissionClaimSelector{MatchAll: true}
	})
	e.waitSecret(t, e.second, "mine-redis", map[string]string{"uri": "redis://confidential@mine", "size": "large"})
	e.answerClaims(t, e.second, apisv1alpha2.ClaimRejected)
	e.waitConnection(t, e.second, "mine", "ClaimNotAccepted")
}
