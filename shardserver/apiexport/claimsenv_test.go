package apiexport_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// TestClaims runs the tests that share a shard.
func TestClaims(t *testing.T) {
	shard := shardtesting.Start(t)
	for name, test := range map[string]func(*testing.T, *shardtesting.Shard){
		"objects of all kinds are labelled while a claim is accepted":     testAllKinds,
		"the resource of another export is claimed by its identity":       testIdentityClaim,
		"a changed selector selects other objects":                        testSelector,
		"users cannot set the labels":                                     testUsersCannotSetLabels,
		"a binding is visible to its export and to exports that claim it": testBindingLabels,
		"events are claimed in both groups":                               testEvents,
		"objects that bypassed admission are repaired":                    testObjectsWithoutAdmission,
		"deletion of a workspace with claims":                             testDeletionOfClaimingWorkspace,
		"claims stay effective until the bound objects are deleted":       testClaimsDuringDeletion,
		"a thousand objects are labelled and unlabelled":                  testManyObjects,
		"an accepted claim that the export does not make":                 testUnclaimedResource,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, shard)
		})
	}
}

// claimsEnv is a provider with claims and a consumer.
type claimsEnv struct {
	*testing.T
	shard    *shardtesting.Shard
	client   client.Client
	provider context.Context
	consumer context.Context
	export   *apisv1alpha2.APIExport
	// names of the logical clusters.
	providerName, consumerName string
}

// newClaimsEnv creates two workspaces and an export "claiming" in the provider's.
func newClaimsEnv(t *testing.T, shard *shardtesting.Shard, claims ...apisv1alpha2.PermissionClaim) *claimsEnv {
	t.Helper()
	provider := shard.NewWorkspace(t, "root", "provider-"+rand.String(6)).Spec.Cluster
	consumer := shard.NewWorkspace(t, "root", "consumer-"+rand.String(6)).Spec.Cluster
	e := &claimsEnv{
		T: t, shard: shard, client: shard.Client(t, shard.Admin(t)), providerName: provider, consumerName: consumer,
		provider: shardtesting.In(t.Context(), provider), consumer: shardtesting.In(t.Context(), consumer),
	}
	e.export = shard.NewExport(t, provider, "claiming", widgets, "Widget", func(export *apisv1alpha2.APIExport) {
		export.Spec.PermissionClaims = claims
	})
	return e
}

func newClaim(group, resource string) apisv1alpha2.PermissionClaim {
	return apisv1alpha2.PermissionClaim{GroupResource: apisv1alpha2.GroupResource{Group: group, Resource: resource}, Verbs: []string{"*"}}
}

// newAcceptedClaim returns the acceptance of a claim for all objects, or for those with some labels.
func newAcceptedClaim(claim apisv1alpha2.PermissionClaim, labels map[string]string) apisv1alpha2.AcceptablePermissionClaim {
	accepted := apisv1alpha2.AcceptablePermissionClaim{State: apisv1alpha2.ClaimAccepted}
	accepted.PermissionClaim = claim
	accepted.Selector.MatchAll, accepted.Selector.MatchLabels = labels == nil, labels
	return accepted
}

// bind binds the export with the given claims.
func (e *claimsEnv) bind(claims ...apisv1alpha2.AcceptablePermissionClaim) *apisv1alpha2.APIBinding {
	e.Helper()
	return e.shard.Bind(e.T, e.consumerName, e.providerName, "claiming", func(binding *apisv1alpha2.APIBinding) {
		binding.Spec.PermissionClaims = claims
	})
}

// claims replaces the claims of the binding.
func (e *claimsEnv) claims(claims ...apisv1alpha2.AcceptablePermissionClaim) {
	e.Helper()
	e.update(&apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{Name: "claiming"}}, func(obj client.Object) {
		obj.(*apisv1alpha2.APIBinding).Spec.PermissionClaims = claims
	})
}

// update updates an object of the consumer as its administrator.
func (e *claimsEnv) update(obj client.Object, change func(client.Object)) {
	e.Helper()
	shardtesting.Eventually(e.T, "updating "+obj.GetName(), func(context.Context) error {
		if err := e.client.Get(e.consumer, client.ObjectKeyFromObject(obj), obj); err != nil {
			return err
		}
		change(obj)
		return e.client.Update(e.consumer, obj)
	})
}

// waitApplied waits until the status of the binding has exactly these applied claims.
func (e *claimsEnv) waitApplied(claims ...apisv1alpha2.PermissionClaim) {
	e.Helper()
	shardtesting.Eventually(e.T, "the claims are applied", func(context.Context) error {
		binding := &apisv1alpha2.APIBinding{}
		if err := e.client.Get(e.consumer, client.ObjectKey{Name: "claiming"}, binding); err != nil {
			return err
		}
		same := slices.EqualFunc(binding.Status.AppliedPermissionClaims, claims, func(a apisv1alpha2.ScopedPermissionClaim, b apisv1alpha2.PermissionClaim) bool {
			return a.EqualGRI(b)
		})
		if !same || !conditionsv1alpha1.IsTrue(binding, apisv1alpha2.PermissionClaimsApplied) {
			return fmt.Errorf("status is %+v", binding.Status)
		}
		return nil
	})
}

// claimLabel returns the label of the objects of a claim of the export.
func (e *claimsEnv) claimLabel(claim apisv1alpha2.PermissionClaim) (key, value string) {
	return apiindex.ClaimLabel(apiindex.ExportKeyOf(e.export), claim)
}

// claimLabels returns the claim labels of an object.
func claimLabels(obj client.Object) map[string]string {
	found := map[string]string{}
	for key, value := range obj.GetLabels() {
		if strings.HasPrefix(key, apisv1alpha2.ClaimedLabelKeyPrefix) {
			found[key] = value
		}
	}
	return found
}

// expectLabels checks the current claim labels of an object of the consumer.
func (e *claimsEnv) expectLabels(obj client.Object, want map[string]string) {
	e.Helper()
	if err := e.client.Get(e.consumer, client.ObjectKeyFromObject(obj), obj); err != nil {
		e.Error(err)
	} else if got := claimLabels(obj); !maps.Equal(got, want) {
		e.Errorf("%T %s has the labels %v, want %v", obj, obj.GetName(), got, want)
	}
}

func newDynamicClient(t *testing.T, shard *shardtesting.Shard, cluster string) dynamic.Interface {
	t.Helper()
	return dynamic.NewForConfigOrDie(shardtesting.At(shard.Admin(t), cluster))
}

func (e *claimsEnv) create(obj client.Object) {
	e.Helper()
	if err := e.client.Create(e.consumer, obj); err != nil {
		e.Fatalf("creating %T %s: %v", obj, obj.GetName(), err)
	}
}

func newConfigMap(name string, labels map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: labels}}
}
