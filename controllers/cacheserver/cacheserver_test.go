package cacheserver

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/internal/golden"
	"github.com/atoll-dev/atoll/controllers/internal/memory"
	"github.com/atoll-dev/atoll/controllers/status"
)

func TestBringingUp(t *testing.T) {
	for sentence, tc := range map[string]struct {
		change    func(*operatorv1alpha1.CacheServer)
		condition string
		text      string
	}{
		"without certificates it waits": {func(*operatorv1alpha1.CacheServer) {}, operatorv1alpha1.ConditionCertificatesReady, "certificates are not issued yet"},
		"an issuer that is not there is named": {func(c *operatorv1alpha1.CacheServer) {
			c.Spec.Certificates.IssuerRef = &operatorv1alpha1.IssuerReference{Name: "company"}
		}, operatorv1alpha1.ConditionCertificatesReady, "Issuer company, which certificates.issuerRef names, does not exist in namespace kcp: create it"},
		"a CA that is not there is named": {func(c *operatorv1alpha1.CacheServer) {
			c.Spec.Certificates.CASecretRef = &corev1.LocalObjectReference{Name: "own"}
		}, operatorv1alpha1.ConditionCertificatesReady, "Secret own, which certificates.caSecretRef names, does not exist"},
		"an etcd that is managed comes first": {func(c *operatorv1alpha1.CacheServer) {
			c.Spec.Etcd = &operatorv1alpha1.EtcdConfig{Managed: &operatorv1alpha1.ManagedEtcd{}}
		}, operatorv1alpha1.ConditionEtcdAvailable, "etcd starts once its certificates are issued"},
		"an etcd that is nowhere is refused": {func(c *operatorv1alpha1.CacheServer) { c.Spec.Etcd = &operatorv1alpha1.EtcdConfig{} },
			operatorv1alpha1.ConditionSpecHonored, "etcd.endpoints is empty"},
		"a long name is refused": {func(c *operatorv1alpha1.CacheServer) { c.Name = strings.Repeat("c", 51) },
			operatorv1alpha1.ConditionSpecHonored, "has 51 characters and may have 50"},
	} {
		t.Run(sentence, func(t *testing.T) {
			cache := &operatorv1alpha1.CacheServer{ObjectMeta: metav1.ObjectMeta{Name: "cache", Namespace: "kcp", UID: "1"}}
			tc.change(cache)
			cluster := memory.Cluster(t, cache)
			r := &Reconciler{Cluster: apply.Cluster{Client: cluster}, Recorder: events.NewFakeRecorder(100), Image: desired.Image{Repository: "atoll", Tag: "v1"}}
			key := client.ObjectKeyFromObject(cache)
			if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
				t.Fatal(err)
			}
			if err := cluster.Get(t.Context(), key, cache); err != nil {
				t.Fatal(err)
			}
			condition := meta.FindStatusCondition(cache.Status.Conditions, tc.condition)
			if condition == nil || condition.Status != metav1.ConditionFalse || !strings.Contains(condition.Message, tc.text) {
				t.Errorf("got %+v", condition)
			}
			if cache.Status.Phase != operatorv1alpha1.CacheServerPhaseProvisioning || !strings.HasPrefix(cache.Status.Endpoint, "https://"+cache.Name+"-cache-server.kcp.svc") {
				t.Errorf("phase %s, endpoint %s", cache.Status.Phase, cache.Status.Endpoint)
			}
		})
	}
}

func TestSpec(t *testing.T) {
	if finding := checkSpec(golden.Sample[operatorv1alpha1.CacheServer](t, "full/cacheserver.yaml")); finding.Kind != status.Fine {
		t.Errorf("the full sample: %+v", finding)
	}
	// An API server that knows the rule admits no such object; one from before the rule may be there.
	finding := checkSpec(&operatorv1alpha1.CacheServer{Spec: operatorv1alpha1.CacheServerSpec{Replicas: ptr.To[int32](2)}})
	if finding.Kind != status.Told || !strings.Contains(finding.Message, "spec.replicas: the embedded store belongs to one pod") {
		t.Errorf("two replicas of an embedded store: %+v", finding)
	}
}
