package replica

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	cachev1alpha1 "github.com/atoll-dev/atoll/api/cache/v1alpha1"
	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/logicalcluster"
)

var identity = strings.Repeat("a1", identityBytes)

func newCachedResource(change func(*cachev1alpha1.ClusterCachedResource)) *cachev1alpha1.ClusterCachedResource {
	cachedResource := &cachev1alpha1.ClusterCachedResource{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets", Annotations: map[string]string{logicalcluster.AnnotationKey: "provider", client.ShardAnnotation: "alpha"}},
		Spec: cachev1alpha1.ClusterCachedResourceSpec{
			GroupVersionResource: cachev1alpha1.GroupVersionResource{Group: "example.io", Version: "v1", Resource: "widgets"},
		},
		Status: cachev1alpha1.ClusterCachedResourceStatus{IdentityHash: identity},
	}
	change(cachedResource)
	return cachedResource
}

func TestSourceOf(t *testing.T) {
	type change = func(*cachev1alpha1.ClusterCachedResource)
	for name, tc := range map[string]struct {
		change change
		want   bool
	}{
		"cached resource of another shard": {func(*cachev1alpha1.ClusterCachedResource) {}, true},
		"core group":                       {func(o *cachev1alpha1.ClusterCachedResource) { o.Spec.Group = "" }, true},
		"no identity":                      {func(o *cachev1alpha1.ClusterCachedResource) { o.Status.IdentityHash = "" }, false},
		"short identity":                   {func(o *cachev1alpha1.ClusterCachedResource) { o.Status.IdentityHash = identity[2:] }, false},
		"identity that is not a hash":      {func(o *cachev1alpha1.ClusterCachedResource) { o.Status.IdentityHash = "customresources" }, false},
		"no shard":                         {func(o *cachev1alpha1.ClusterCachedResource) { delete(o.Annotations, client.ShardAnnotation) }, false},
		"system logical cluster": {func(o *cachev1alpha1.ClusterCachedResource) {
			o.Annotations[logicalcluster.AnnotationKey] = "system:admin"
		}, false},
		"resource with a path":      {func(o *cachev1alpha1.ClusterCachedResource) { o.Spec.Resource = "../secrets" }, false},
		"resource with an identity": {func(o *cachev1alpha1.ClusterCachedResource) { o.Spec.Resource = "widgets:" + identity }, false},
		"subresource":               {func(o *cachev1alpha1.ClusterCachedResource) { o.Spec.Resource = "widgets/status" }, false},
		"group with a path":         {func(o *cachev1alpha1.ClusterCachedResource) { o.Spec.Group = "a/b" }, false},
		"no version":                {func(o *cachev1alpha1.ClusterCachedResource) { o.Spec.Version = "" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got, ok := SourceOf(newCachedResource(tc.change)); ok != tc.want {
				t.Errorf("got %+v, %v", got, ok)
			}
		})
	}
}

func TestTrusts(t *testing.T) {
	source, _ := SourceOf(newCachedResource(func(*cachev1alpha1.ClusterCachedResource) {}))
	f := &eventHandler{source: source}
	newObject := func(change func(*client.Object)) *client.Object {
		object := &client.Object{Key: client.Key{Shard: "alpha", Cluster: source.Cluster, Name: "a"}}
		object.APIVersion = "example.io/v1"
		change(object)
		return object
	}
	for name, tc := range map[string]struct {
		object *client.Object
		want   bool
	}{
		"object of its shard":               {newObject(func(*client.Object) {}), true},
		"object of another shard":           {newObject(func(o *client.Object) { o.Shard = "beta" }), false},
		"object of another logical cluster": {newObject(func(o *client.Object) { o.Cluster = logicalcluster.Root }), false},
		"namespaced object":                 {newObject(func(o *client.Object) { o.Namespace = "default" }), false},
		"object of another group":           {newObject(func(o *client.Object) { o.APIVersion = "v1" }), false},
		"name with a path":                  {newObject(func(o *client.Object) { o.Name = "../a" }), false},
		"completeness marker":               {newObject(func(o *client.Object) { o.Key = client.CompleteKey("alpha", source.Cluster) }), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := f.trusts(tc.object); got != tc.want {
				t.Errorf("got %v", got)
			}
		})
	}
	if !f.isComplete(newObject(func(o *client.Object) { o.Key = client.CompleteKey("alpha", source.Cluster) })) ||
		f.isComplete(newObject(func(o *client.Object) { o.Key = client.CompleteKey("beta", source.Cluster) })) {
		t.Error("the completeness marker of the source was not recognized, or that of another shard was")
	}
}

func TestParseKey(t *testing.T) {
	cluster := logicalcluster.MustParseName("provider")
	for key, want := range map[string]struct {
		source sourceKey
		prefix string
		ok     bool
	}{
		"example.io/widgets/" + identity + "/provider/a": {sourceKey{storageKey{schema.GroupResource{Group: "example.io", Resource: "widgets"}, identity}, cluster}, "example.io/widgets/" + identity + "/provider/", true},
		"core/widgets/" + identity + "/provider/a":       {sourceKey{storageKey{schema.GroupResource{Resource: "widgets"}, identity}, cluster}, "core/widgets/" + identity + "/provider/", true},
		"example.io/widgets/provider/a":                  {},
		"example.io/widgets/x/*/a/b":                     {},
	} {
		source, prefix, ok := parseKey(key)
		if source != want.source || prefix != want.prefix || ok != want.ok {
			t.Errorf("%s: got %+v, %q, %v", key, source, prefix, ok)
		}
	}
}

func TestSetSourcesLimit(t *testing.T) {
	k := NewReplicator(ReplicatorConfig{})
	if k.Sources() != nil {
		t.Error("there are sources before SetSources")
	}
	var sources []Source
	for i := range maxSources + 10 {
		source, _ := SourceOf(newCachedResource(func(o *cachev1alpha1.ClusterCachedResource) {
			o.Annotations[logicalcluster.AnnotationKey] = fmt.Sprintf("provider%04d", i)
		}))
		sources = append(sources, source, source)
	}
	slices.Reverse(sources)
	k.SetSources(t.Context(), sources)
	selected := k.Sources()
	if len(selected) != maxSources {
		t.Fatalf("%d sources are selected", len(selected))
	}
	for _, source := range selected {
		if source.Cluster.String() >= fmt.Sprintf("provider%04d", maxSources) {
			t.Errorf("%s is selected and not one of the first", source.Cluster)
		}
	}
	k.SetSources(t.Context(), nil)
	if got := k.Sources(); got == nil || len(got) > 0 {
		t.Errorf("got %v, want no sources", got)
	}
}

func TestSetSourcesFairness(t *testing.T) {
	newSource := func(cluster string, identity int) Source {
		source, ok := SourceOf(newCachedResource(func(o *cachev1alpha1.ClusterCachedResource) {
			o.Annotations[logicalcluster.AnnotationKey] = cluster
			o.Status.IdentityHash = fmt.Sprintf("%064x", identity)
		}))
		if !ok {
			t.Fatal("no source")
		}
		return source
	}
	var greedy []Source
	for i := range 2 * maxSources {
		greedy = append(greedy, newSource("a-greedy", i))
	}
	k := NewReplicator(ReplicatorConfig{})
	k.SetSources(t.Context(), greedy)
	before := k.Sources()
	modest := newSource("z-modest", 1)
	k.SetSources(t.Context(), append([]Source{modest, newSource("z-modest", 2)}, greedy...))
	now := k.Sources()
	if len(now) != maxSources || !slices.Contains(now, modest) {
		t.Errorf("%d sources are selected, the one of the small logical cluster: %v", len(now), slices.Contains(now, modest))
	}
	kept := 0
	for _, source := range now {
		if slices.Contains(before, source) {
			kept++
		}
	}
	if kept != maxSources-2 {
		t.Errorf("%d previous sources are still selected, want all but two", kept)
	}
}
