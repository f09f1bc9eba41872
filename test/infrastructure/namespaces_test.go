package infrastructure

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/atoll-dev/atoll/infrastructure/runtimecluster"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// namespaced are the objects of the namespace of a tenant.
type namespaced struct {
	namespace corev1.Namespace
	limits    corev1.LimitRange
	quota     corev1.ResourceQuota
	network   networkingv1.NetworkPolicy
}

func readNamespace(ctx context.Context, c client.Client, name string) (*namespaced, error) {
	n := &namespaced{}
	if err := c.Get(ctx, client.ObjectKey{Name: name}, &n.namespace); err != nil {
		return nil, err
	}
	key := client.ObjectKey{Namespace: name, Name: "infrastructure-defaults"}
	for _, object := range []client.Object{&n.limits, &n.quota, &n.network} {
		if err := c.Get(ctx, key, object); client.IgnoreNotFound(err) != nil {
			return nil, err
		}
	}
	return n, nil
}

func (n *namespaced) versions() [4]string {
	return [4]string{n.namespace.ResourceVersion, n.limits.ResourceVersion, n.quota.ResourceVersion, n.network.ResourceVersion}
}

func TestNamespacesOfTenantsHaveDefaults(t *testing.T) {
	t.Parallel()
	shared.Start(t)
	c, err := client.New(shared.runtime.Config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	tenant, err := logicalcluster.ParseName("tenantwithdefaults")
	if err != nil {
		t.Fatal(err)
	}
	set := runtimecluster.Set{Tenant: tenant, Template: "t", Version: "1.0.0", Instance: "i"}
	begin := func(defaults runtimecluster.Defaults) *namespaced {
		t.Helper()
		cluster := &runtimecluster.Cluster{Client: c, Group: "example.org", Backend: "test", Defaults: defaults}
		if _, err := cluster.Begin(t.Context(), set); err != nil {
			t.Fatal(err)
		}
		found, err := readNamespace(t.Context(), c, runtimecluster.Namespace(tenant))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	quantity := resource.MustParse
	defaults := runtimecluster.Defaults{
		PodSecurity: "baseline", Requests: corev1.ResourceList{"cpu": quantity("50m")}, Limits: corev1.ResourceList{"memory": quantity("1Gi")},
		Quota: corev1.ResourceList{"count/secrets": quantity("0")}, Isolated: true, AllowedFrom: []string{"ingress"}, RestrictEgress: true,
	}
	first := begin(defaults)
	if got := first.namespace.Labels["pod-security.kubernetes.io/enforce"]; got != "baseline" {
		t.Errorf("the level of pod security is %q", got)
	}
	if items := first.limits.Spec.Limits; len(items) != 1 || items[0].Default.Memory().String() != "1Gi" || items[0].DefaultRequest.Cpu().String() != "50m" {
		t.Errorf("limits %+v", items)
	}
	if policy := first.network.Spec; len(policy.PolicyTypes) != 2 || len(policy.Ingress) != 1 || len(policy.Ingress[0].From) != 2 || len(policy.Egress) != 2 {
		t.Errorf("the policy is %+v", policy)
	}
	if again := begin(defaults); again.versions() != first.versions() {
		t.Errorf("unchanged defaults were written: %v, before %v", again.versions(), first.versions())
	}

	// There is no controller that computes quotas.
	first.quota.Status = corev1.ResourceQuotaStatus{Hard: first.quota.Spec.Hard, Used: corev1.ResourceList{"count/secrets": quantity("0")}}
	if err := c.Status().Update(t.Context(), &first.quota); err != nil {
		t.Fatal(err)
	}
	secret := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "a"}}}
	cluster := &runtimecluster.Cluster{Client: c, Group: "example.org", Backend: "test", Defaults: defaults}
	_, err = cluster.Apply(t.Context(), set, []*unstructured.Unstructured{secret})
	if state, ok := runtimecluster.Refusal(err); !ok || state.Reason != runtimecluster.ReasonQuotaExceeded {
		t.Errorf("a Secret more than the quota: %+v, %v", state, err)
	}

	if without := begin(runtimecluster.Defaults{}); without.limits.Name+without.quota.Name+without.network.Name != "" || without.namespace.Labels["pod-security.kubernetes.io/enforce"] != "" {
		t.Errorf("without defaults there is %+v", without)
	}
	if err := c.Delete(t.Context(), &first.namespace); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}
