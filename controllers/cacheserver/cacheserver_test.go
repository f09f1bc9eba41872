package cacheserver

import (
	"strings"
	"testing"
	"time"

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
	"github.com/atoll-dev/atoll/controllers/internal/memory"
	"github.com/atoll-dev/atoll/controllers/reconcile"
	"github.com/atoll-dev/atoll/controllers/status"
	"github.com/atoll-dev/atoll/internal/golden"
)

func TestConditions(t *testing.T) {
	for name, tc := range map[string]struct {
		change    func(*operatorv1alpha1.CacheServer)
		condition string
		text      string
	}{
		"without certificates it waits": {func(*operatorv1alpha1.CacheServer) {}, operatorv1alpha1.ConditionCertificatesReady, "certificates are not issued yet"},
		"an issuer that does not exist is named": {func(c *operatorv1alpha1.CacheServer) {
			c.Spec.Certificates.IssuerRef = &operatorv1alpha1.IssuerReference{Name: "company"}
		}, operatorv1alpha1.ConditionCertificatesReady, "Issuer company, which certificates.issuerRef names, does not exist in namespace kcp: create it"},
		"a CA that does not exist is named": {func(c *operatorv1alpha1.CacheServer) {
			c.Spec.Certificates.CASecretRef = &corev1.LocalObjectReference{Name: "own"}
		}, operatorv1alpha1.ConditionCertificatesReady, "Secret own, which certificates.caSecretRef names, does not exist"},
		"a managed etcd starts first": {func(c *operatorv1alpha1.CacheServer) {
			c.Spec.Etcd = &operatorv1alpha1.EtcdConfig{Managed: &operatorv1alpha1.ManagedEtcd{}}
		}, operatorv1alpha1.ConditionEtcdAvailable, "etcd starts once its certificates are issued"},
		"an etcd without endpoints is rejected": {func(c *operatorv1alpha1.CacheServer) { c.Spec.Etcd = &operatorv1alpha1.EtcdConfig{} },
			operatorv1alpha1.ConditionSpecHonored, "etcd.endpoints is empty"},
		"a long name is rejected": {func(c *operatorv1alpha1.CacheServer) { c.Name = strings.Repeat("c", 51) },
			operatorv1alpha1.ConditionSpecHonored, "has 51 characters and may have 50"},
	} {
		t.Run(name, func(t *testing.T) {
			cache := &operatorv1alpha1.CacheServer{ObjectMeta: metav1.ObjectMeta{Name: "cache", Namespace: "kcp", UID: "1"}}
			tc.change(cache)
			cluster := memory.NewClient(t, cache)
			r := NewReconciler(reconcile.Config{Cluster: apply.Cluster{Client: cluster}, Recorder: events.NewFakeRecorder(100), Now: time.Now, Image: desired.Image{Repository: "atoll", Tag: "v1"}})
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

func TestFindParent(t *testing.T) {
	cache := func(name, parent string) *operatorv1alpha1.CacheServer {
		out := &operatorv1alpha1.CacheServer{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "kcp"}}
		if parent != "" {
			out.Spec.Parent = &operatorv1alpha1.CacheParent{CacheServerRef: &corev1.LocalObjectReference{Name: parent}}
		}
		return out
	}
	withCacheName := func(cache *operatorv1alpha1.CacheServer, name string) *operatorv1alpha1.CacheServer {
		cache.Spec.CacheName = name
		return cache
	}
	belowRootShard := cache("europe", "")
	belowRootShard.Spec.Parent = &operatorv1alpha1.CacheParent{RootShardRef: &corev1.LocalObjectReference{Name: "root"}}
	root := &operatorv1alpha1.RootShard{ObjectMeta: metav1.ObjectMeta{Name: "root", Namespace: "kcp"}}
	rootWithCacheServer := root.DeepCopy()
	rootWithCacheServer.Spec.Cache.Ref = &corev1.LocalObjectReference{Name: "world"}
	for name, tc := range map[string]struct {
		given   []client.Object // the first is reconciled
		url     string          // of the parent
		message string          // of the result
	}{
		"the top has none":                     {[]client.Object{cache("world", "")}, "", ""},
		"another CacheServer":                  {[]client.Object{cache("europe", "world"), cache("world", "")}, "https://world-cache-server.kcp.svc.cluster.local:6443", ""},
		"the cache of a root shard":            {[]client.Object{belowRootShard, root}, "https://root-kcp.kcp.svc.cluster.local:6443", ""},
		"a root shard without a cache":         {[]client.Object{belowRootShard, rootWithCacheServer}, "", "embeds no cache: it uses CacheServer world"},
		"a root shard that does not exist":     {[]client.Object{belowRootShard}, "", "RootShard root, which parent.rootShardRef names, does not exist"},
		"one that does not exist":              {[]client.Object{cache("europe", "world")}, "", "CacheServer world, which parent.cacheServerRef names, does not exist"},
		"itself":                               {[]client.Object{cache("world", "world")}, "", "form a cycle"},
		"one below it":                         {[]client.Object{cache("world", "europe"), cache("europe", "world")}, "", "form a cycle"},
		"the name of another below the same":   {[]client.Object{withCacheName(cache("europe", "world"), "asia"), cache("asia", "world"), cache("world", "")}, "", "CacheServer asia of the same hierarchy is named asia, too"},
		"the name of one in another hierarchy": {[]client.Object{withCacheName(cache("europe", "world"), "asia"), cache("asia", ""), cache("world", "")}, "https://world-cache-server.kcp.svc.cluster.local:6443", ""},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := apply.Cluster{Client: memory.NewClient(t, tc.given...)}
			parent, result, err := findParent(t.Context(), cluster, tc.given[0].(*operatorv1alpha1.CacheServer))
			if err != nil {
				t.Fatal(err)
			}
			url := ""
			if parent != nil {
				url = parent.URL
			}
			if url != tc.url || (result.Type == "") != (tc.message == "") || !strings.Contains(result.Message, tc.message) {
				t.Errorf("got %q, %+v", url, result)
			}
		})
	}
}

func TestValidateSpec(t *testing.T) {
	if result := validateSpec(golden.Sample[operatorv1alpha1.CacheServer](t, "full/cacheserver.yaml")); result.State != status.Satisfied {
		t.Errorf("the full sample: %+v", result)
	}
	withoutParentName := &operatorv1alpha1.CacheServer{Spec: operatorv1alpha1.CacheServerSpec{Parent: &operatorv1alpha1.CacheParent{KubeconfigSecretRef: &corev1.LocalObjectReference{}}}}
	if result := validateSpec(withoutParentName); result.State != status.Stalled || !strings.Contains(result.Message, "parent.kubeconfigSecretRef.name is empty") {
		t.Errorf("a parent without a name: %+v", result)
	}
	withCacheName := &operatorv1alpha1.CacheServer{Spec: operatorv1alpha1.CacheServerSpec{CacheName: "europe"}}
	if result := validateSpec(withCacheName); result.State != status.Warning || !strings.Contains(result.Message, "cacheName") {
		t.Errorf("a name without a parent: %+v", result)
	}
	// The schema rejects such an object, but an older one may exist.
	result := validateSpec(&operatorv1alpha1.CacheServer{Spec: operatorv1alpha1.CacheServerSpec{Replicas: ptr.To[int32](2)}})
	if result.State != status.Warning || !strings.Contains(result.Message, "spec.replicas: the embedded store belongs to one pod") {
		t.Errorf("two replicas of an embedded store: %+v", result)
	}
}
