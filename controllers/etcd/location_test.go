package etcd_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/etcd"
)

func TestFindConflict(t *testing.T) {
	meta := func(namespace, name string, age time.Duration) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0).Add(-age))}
	}
	external := func(prefix string, endpoints ...string) *operatorv1alpha1.EtcdConfig {
		return &operatorv1alpha1.EtcdConfig{Endpoints: endpoints, Prefix: prefix}
	}
	shard := func(namespace, name string, age time.Duration, spec *operatorv1alpha1.EtcdConfig) etcd.Usage {
		return etcd.ShardUsage(&operatorv1alpha1.Shard{ObjectMeta: meta(namespace, name, age),
			Spec: operatorv1alpha1.ShardSpec{CommonShardSpec: operatorv1alpha1.CommonShardSpec{Etcd: spec}}})
	}
	root := func(age time.Duration, spec *operatorv1alpha1.EtcdConfig, change func(*operatorv1alpha1.RootShardSpec)) etcd.Usage {
		object := &operatorv1alpha1.RootShard{ObjectMeta: meta("kcp", "root", age),
			Spec: operatorv1alpha1.RootShardSpec{CommonShardSpec: operatorv1alpha1.CommonShardSpec{Etcd: spec}}}
		if change != nil {
			change(&object.Spec)
		}
		return etcd.RootShardUsage(object)
	}
	cache := func(age time.Duration, spec *operatorv1alpha1.EtcdConfig) etcd.Usage {
		return etcd.CacheServerUsage(&operatorv1alpha1.CacheServer{ObjectMeta: meta("kcp", "cache", age), Spec: operatorv1alpha1.CacheServerSpec{Etcd: spec}})
	}
	index := func(r *operatorv1alpha1.RootShardSpec) {
		r.SharedIndex = &operatorv1alpha1.SharedIndexConfig{Endpoints: []string{"https://index:2379"}}
	}
	const shared = "https://etcd-0.etcd:2379"
	for name, tc := range map[string]struct {
		self, other etcd.Usage
		refused     bool
	}{
		"the same endpoints and prefix are refused":        {shard("kcp", "b", 0, external("", shared)), shard("kcp", "a", 1, external("", shared)), true},
		"the older one keeps them":                         {shard("kcp", "a", 1, external("", shared)), shard("kcp", "b", 0, external("", shared)), false},
		"of two of the same age the first by name does":    {shard("kcp", "b", 0, external("", shared)), shard("kcp", "a", 0, external("", shared)), true},
		"one common endpoint is enough":                    {shard("kcp", "b", 0, external("", "https://x:2379", shared)), shard("kcp", "a", 1, external("", shared)), true},
		"another prefix is not refused":                    {shard("kcp", "b", 0, external("/b", shared)), shard("kcp", "a", 1, external("", shared)), false},
		"the default prefix written out is the same":       {shard("kcp", "b", 0, external("registry/", shared)), shard("kcp", "a", 1, external("", shared)), true},
		"another port is another etcd":                     {shard("kcp", "b", 0, external("", "https://etcd-0.etcd:12379")), shard("kcp", "a", 1, external("", shared)), false},
		"short names in two namespaces are two Services":   {shard("one", "b", 0, external("", "https://etcd:2379")), shard("two", "a", 1, external("", "https://etcd:2379")), false},
		"a full name is that of the short one":             {shard("one", "b", 0, external("", "https://etcd.two.svc.cluster.local:2379")), shard("two", "a", 1, external("", "https://etcd:2379")), true},
		"an external name is the same everywhere":          {shard("one", "b", 0, external("", "https://Etcd.example.com:2379")), shard("two", "a", 1, external("", "https://etcd.example.com:2379")), true},
		"an etcd that the operator runs for another one":   {shard("kcp", "b", 0, external("", "https://a-etcd-client:2379")), shard("kcp", "a", 1, nil), true},
		"a member of it":                                   {shard("kcp", "b", 0, external("", "https://a-etcd-0.a-etcd.kcp.svc:2379")), shard("kcp", "a", 1, nil), true},
		"two etcds that the operator runs":                 {shard("kcp", "b", 0, nil), shard("kcp", "a", 1, nil), false},
		"a cache server beside a shard":                    {cache(0, external("", shared)), shard("kcp", "a", 1, external("", shared)), false},
		"a cache server in the prefix of a shard":          {cache(0, external("/registry", shared)), shard("kcp", "a", 1, external("", shared)), true},
		"a cache server in the embedded cache of a root":   {cache(0, external("", shared)), root(1, external("", shared), nil), true},
		"a cache server that the root shard uses":          {cache(0, external("", shared)), root(1, external("", shared), func(r *operatorv1alpha1.RootShardSpec) { r.Cache.Ref = &corev1.LocalObjectReference{Name: "cache"} }), false},
		"the embedded cache of a root with its own prefix": {cache(0, external("/one-cache", shared)), root(1, external("/one", shared), nil), true},
		"an embedded cache server uses none":               {cache(0, nil), shard("kcp", "a", 1, external("/cache", shared)), false},
		"a shard in the shared index":                      {shard("kcp", "b", 0, external("/kcp-index", "https://index:2379")), root(1, nil, index), true},
	} {
		t.Run(name, func(t *testing.T) {
			conflict := etcd.FindConflict(tc.self, []etcd.Usage{tc.self, tc.other})
			if (conflict != nil) != tc.refused {
				t.Errorf("got %+v", conflict)
			}
		})
	}
}
