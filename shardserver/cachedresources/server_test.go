package cachedresources_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	cachev1alpha1 "github.com/atoll-dev/atoll/api/cache/v1alpha1"
	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	cachetesting "github.com/atoll-dev/atoll/cacheserver/testing"
	"github.com/atoll-dev/atoll/shardserver/options"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

var flavors = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "flavors"}

// env is a provider that publishes flavors on one shard, and consumers on the same or another shard.
type env struct {
	cache                  *cachetesting.Cache
	root, shard, consumers *shardtesting.Shard
	c                      client.Client
	provider, consumer     string
}

func cacheAPIs(o *options.Options) { o.FeatureGates = []string{"CacheAPIs=true"} }

func newEnv(t *testing.T) *env {
	t.Helper()
	cache := cachetesting.Start(t)
	kubeconfig := cache.Kubeconfig(t, cache.Shard(t, "root"))
	shard := shardtesting.Start(t, cacheAPIs, func(o *options.Options) { o.Shard.CacheKubeconfig = kubeconfig })
	return &env{
		cache: cache,
		root:  shard, shard: shard, consumers: shard, c: shard.Client(t, shard.Admin(t)),
		provider: shard.NewWorkspace(t, "root", "provider").Spec.Cluster, consumer: shard.NewWorkspace(t, "root", "consumer").Spec.Cluster,
	}
}

// shardOf returns the shard of a logical cluster.
func (e *env) shardOf(cluster string) *shardtesting.Shard {
	if cluster == e.provider {
		return e.shard
	}
	return e.consumers
}

func (e *env) dynamicClient(t *testing.T, config *rest.Config, path string) dynamic.Interface {
	t.Helper()
	config = rest.CopyConfig(config)
	config.Host += path
	c, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (e *env) flavorsClient(t *testing.T, config *rest.Config, path string) dynamic.ResourceInterface {
	t.Helper()
	return e.dynamicClient(t, config, path).Resource(flavors)
}

func (e *env) flavorsIn(t *testing.T, cluster string) dynamic.ResourceInterface {
	t.Helper()
	return e.flavorsClient(t, e.shardOf(cluster).Admin(t), "/clusters/"+cluster)
}

func newFlavor(name, shown string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Flavor",
		"metadata": map[string]any{"name": name, "labels": map[string]any{"shown": shown}},
		"spec":     map[string]any{"taste": name},
	}}
}

func (e *env) createCRD(t *testing.T) {
	t.Helper()
	objectSchema := &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
		"spec": {Type: "object", XPreserveUnknownFields: ptr.To(true)},
	}}
	definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "flavors.example.com"}, Spec: apiextensionsv1.CustomResourceDefinitionSpec{
		Group: "example.com", Scope: apiextensionsv1.ClusterScoped,
		Names:    apiextensionsv1.CustomResourceDefinitionNames{Plural: "flavors", Singular: "flavor", Kind: "Flavor", ListKind: "FlavorList"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: objectSchema}}},
	}}
	if err := e.c.Create(shardtesting.In(t.Context(), e.provider), definition); err != nil {
		t.Fatal(err)
	}
	for _, object := range []*unstructured.Unstructured{newFlavor("sweet", "yes"), newFlavor("sour", "yes"), newFlavor("secret", "no")} {
		shardtesting.Eventually(t, "flavors to be served", func(ctx context.Context) error {
			_, err := e.flavorsIn(t, e.provider).Create(ctx, object, metav1.CreateOptions{})
			return err
		})
	}
}

// cachedResource publishes the flavors with the label shown=yes, and returns the identity.
func (e *env) cachedResource(t *testing.T) string {
	t.Helper()
	cachedResource := &cachev1alpha1.ClusterCachedResource{ObjectMeta: metav1.ObjectMeta{Name: "flavors"}, Spec: cachev1alpha1.ClusterCachedResourceSpec{
		GroupVersionResource: cachev1alpha1.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "flavors"},
		LabelSelector:        &metav1.LabelSelector{MatchLabels: map[string]string{"shown": "yes"}},
	}}
	if err := e.c.Create(shardtesting.In(t.Context(), e.provider), cachedResource); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the cached resource to be ready", func(ctx context.Context) error {
		if err := e.c.Get(shardtesting.In(ctx, e.provider), client.ObjectKeyFromObject(cachedResource), cachedResource); err != nil {
			return err
		}
		counts := cachedResource.Status.ResourceCounts
		if cachedResource.Status.Phase != cachev1alpha1.ClusterCachedResourcePhaseReady || counts == nil || counts.Local != 2 || counts.Cache != 2 {
			return fmt.Errorf("status %+v, counts %+v", cachedResource.Status, counts)
		}
		for _, condition := range []conditionsv1alpha1.Type{cachev1alpha1.ResourceValid, cachev1alpha1.IdentityValid, cachev1alpha1.ReplicationStarted} {
			if !conditionsv1alpha1.IsTrue(cachedResource, condition) {
				return fmt.Errorf("%s: %+v", condition, cachedResource.Status.Conditions)
			}
		}
		return nil
	})
	if kind, scope := cachedResource.Annotations[cachev1alpha1.ResourceKindAnnotationKey], cachedResource.Annotations[cachev1alpha1.ResourceScopeAnnotationKey]; kind != "Flavor" || scope != "Cluster" {
		t.Errorf("kind %q, scope %q", kind, scope)
	}
	secret := &corev1.Secret{}
	if err := e.c.Get(shardtesting.In(t.Context(), e.provider), client.ObjectKey{Namespace: "kcp-system", Name: "flavors"}, secret); err != nil {
		t.Error(err)
	}
	return cachedResource.Status.IdentityHash
}

// createExport serves the cached resource to consumers, by a slice.
func (e *env) createExport(t *testing.T, identityHash string) {
	t.Helper()
	in := shardtesting.In(t.Context(), e.provider)
	without := &cachev1alpha1.ClusterCachedResourceEndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "no-export"}, Spec: cachev1alpha1.ClusterCachedResourceEndpointSliceSpec{
		ClusterCachedResource: cachev1alpha1.ClusterCachedResourceReference{Name: "flavors"},
	}}
	if err := e.c.Create(in, without); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the condition of a slice without an export", func(ctx context.Context) error {
		if err := e.c.Get(shardtesting.In(ctx, e.provider), client.ObjectKeyFromObject(without), without); err != nil {
			return err
		}
		if condition := conditionsv1alpha1.Get(without, cachev1alpha1.APIExportValid); condition == nil || condition.Reason != cachev1alpha1.ReasonAPIExportInvalidReference || !strings.Contains(condition.Message, "spec.export is not set") {
			return fmt.Errorf("got %+v", condition)
		}
		return nil
	})
	slice := &cachev1alpha1.ClusterCachedResourceEndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "flavors"}, Spec: cachev1alpha1.ClusterCachedResourceEndpointSliceSpec{
		ClusterCachedResource: cachev1alpha1.ClusterCachedResourceReference{Name: "flavors"},
		APIExport:             cachev1alpha1.ExportBindingReference{Name: "flavors"},
	}}
	if err := e.c.Create(in, slice); err != nil {
		t.Fatal(err)
	}
	e.waitSlice(t, func(slice *cachev1alpha1.ClusterCachedResourceEndpointSlice) bool {
		condition := conditionsv1alpha1.Get(slice, cachev1alpha1.APIExportValid)
		return condition != nil && condition.Reason == cachev1alpha1.ReasonAPIExportInvalidReference
	})
	resourceSchema, export := newExport("flavors", identityHash)
	for _, object := range []client.Object{resourceSchema, export} {
		if err := e.c.Create(in, object); err != nil {
			t.Fatal(err)
		}
	}
	e.waitSlice(t, func(slice *cachev1alpha1.ClusterCachedResourceEndpointSlice) bool {
		return conditionsv1alpha1.IsTrue(slice, cachev1alpha1.APIExportValid) && conditionsv1alpha1.IsTrue(slice, cachev1alpha1.ResourceValid) &&
			conditionsv1alpha1.IsTrue(slice, cachev1alpha1.PartitionValid) && len(slice.Status.Endpoints) == 0
	})
}

// newExport returns an export that serves flavors by a slice of its own name, and its schema.
func newExport(name, identityHash string) (*apisv1alpha1.APIResourceSchema, *apisv1alpha2.APIExport) {
	resourceSchema := shardtesting.NewSchema("v1", flavors.GroupResource(), "Flavor")
	resourceSchema.Spec.Scope = apiextensionsv1.ClusterScoped
	resourceSchema.Spec.Versions[0].Subresources = apiextensionsv1.CustomResourceSubresources{}
	return resourceSchema, &apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: apisv1alpha2.APIExportSpec{Resources: []apisv1alpha2.ResourceSchema{{
		Name: "flavors", Group: "example.com", Schema: resourceSchema.Name,
		Storage: apisv1alpha2.ResourceSchemaStorage{Virtual: &apisv1alpha2.ResourceSchemaStorageVirtual{
			Reference:    corev1.TypedLocalObjectReference{APIGroup: ptr.To("cache.kcp.io"), Kind: "ClusterCachedResourceEndpointSlice", Name: name},
			IdentityHash: identityHash,
		}},
	}}}}
}

func (e *env) waitSlice(t *testing.T, condition func(*cachev1alpha1.ClusterCachedResourceEndpointSlice) bool) {
	t.Helper()
	slice := &cachev1alpha1.ClusterCachedResourceEndpointSlice{}
	shardtesting.Eventually(t, "the slice", func(ctx context.Context) error {
		if err := e.c.Get(shardtesting.In(ctx, e.provider), client.ObjectKey{Name: "flavors"}, slice); err != nil {
			return err
		}
		if !condition(slice) {
			return fmt.Errorf("status %+v", slice.Status)
		}
		return nil
	})
}

// TestCachedResources tests in sequence: publish, export, bind, read, change, unbind, delete.
func TestCachedResources(t *testing.T) {
	s := newEnv(t)
	s.createCRD(t)
	s.cachedResource(t)
	s.createExport(t, "") // the identity of the storage need not be named
	s.consumers.Bind(t, s.consumer, s.provider, "flavors")
	view := "/services/replication/" + s.provider + "/flavors"
	s.waitSlice(t, func(slice *cachev1alpha1.ClusterCachedResourceEndpointSlice) bool {
		return len(slice.Status.Endpoints) == 1 && strings.HasSuffix(slice.Status.Endpoints[0].URL, view)
	})
	t.Run("consumer reads the published objects as its own", s.testConsumerReads)
	t.Run("cache server has what is counted", func(t *testing.T) { s.expectCopies(t, "root", "sour", "sweet") })
	t.Run("consumer watches", s.testConsumerWatches)
	t.Run("virtual workspace", func(t *testing.T) { s.basePath(t, view) })
	t.Run("virtual workspace of the export", s.testExportView)
	t.Run("watch ends with the binding", s.testWatchEnds)
	t.Run("cached resource is deleted", s.testDeletion)
	t.Run("custom subresources on a shard that trusts no backends", s.testSubresourceWithoutBackends)
}

// expectCopies checks the copies in the cache server, as clients without a shard list them: by the name of the resource.
func (e *env) expectCopies(t *testing.T, shard string, want ...string) {
	t.Helper()
	masters := e.cache.Masters(t)
	for _, scope := range []string{"/shards/" + shard + "/clusters/" + e.provider, "/shards/*/clusters/*"} {
		waitForNames(t, "the copies in "+scope, e.flavorsClient(t, masters, "/services/cache"+scope), want...)
	}
}

// waitForNames waits until a list has these objects, and returns its resource version.
func waitForNames(t *testing.T, what string, c dynamic.ResourceInterface, want ...string) (resourceVersion string) {
	t.Helper()
	shardtesting.Eventually(t, what, func(ctx context.Context) error {
		list, err := c.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		var got []string
		for _, item := range list.Items {
			got = append(got, item.GetName())
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			return fmt.Errorf("got %q, want %q", got, want)
		}
		resourceVersion = list.GetResourceVersion()
		return nil
	})
	return resourceVersion
}

func (e *env) testConsumerReads(t *testing.T) {
	consumerFlavors := e.flavorsIn(t, e.consumer)
	shardtesting.Eventually(t, "the consumer to list the objects", func(ctx context.Context) error {
		list, err := consumerFlavors.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(list.Items) != 2 {
			return fmt.Errorf("%d objects", len(list.Items))
		}
		for _, item := range list.Items {
			if item.GetAnnotations()["kcp.io/cluster"] != e.consumer {
				return fmt.Errorf("%s is in %q", item.GetName(), item.GetAnnotations())
			}
		}
		return nil
	})
	if got, err := consumerFlavors.Get(t.Context(), "sweet", metav1.GetOptions{}); err != nil || got.GetAnnotations()["kcp.io/cluster"] != e.consumer {
		t.Errorf("%v, %v", got, err)
	}
	if list, err := consumerFlavors.List(t.Context(), metav1.ListOptions{LabelSelector: "shown=no"}); err != nil || len(list.Items) != 0 {
		t.Errorf("objects that are not published: %v, %v", list, err)
	}
	if _, err := consumerFlavors.Get(t.Context(), "secret", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("object that is not published: got %v, want NotFound", err)
	}
	if original, err := e.flavorsIn(t, e.provider).Get(t.Context(), "sweet", metav1.GetOptions{}); err != nil || original.GetAnnotations()["kcp.io/cluster"] != e.provider {
		t.Errorf("in the provider: %v, %v", original, err)
	}
	if _, err := consumerFlavors.Create(t.Context(), newFlavor("mine", "yes"), metav1.CreateOptions{}); !apierrors.IsMethodNotSupported(err) {
		t.Errorf("creating: got %v, want MethodNotAllowed", err)
	}
	if err := consumerFlavors.Delete(t.Context(), "sweet", metav1.DeleteOptions{}); !apierrors.IsMethodNotSupported(err) {
		t.Errorf("deleting: got %v, want MethodNotAllowed", err)
	}
	_, body := shardtesting.Send(t, e.consumers.Admin(t), http.MethodGet, "/clusters/"+e.consumer+"/apis/example.com/v1", "")
	if !strings.Contains(body, `"watch"`) || strings.Contains(body, `"create"`) {
		t.Errorf("discovery: %s", body)
	}
}

func (e *env) testConsumerWatches(t *testing.T) {
	list, err := e.flavorsIn(t, e.consumer).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	events, err := e.flavorsIn(t, e.consumer).Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	for _, object := range []*unstructured.Unstructured{newFlavor("hidden", "no"), newFlavor("bitter", "yes")} {
		if _, err := e.flavorsIn(t, e.provider).Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	event := <-events.ResultChan()
	got, ok := event.Object.(*unstructured.Unstructured)
	if !ok || event.Type != watch.Added || got.GetName() != "bitter" || got.GetAnnotations()["kcp.io/cluster"] != e.consumer {
		t.Errorf("got %+v", event)
	}
}

func (e *env) basePath(t *testing.T, basePath string) {
	admin, user, masters := e.consumers.Admin(t), e.consumers.User(t), e.consumers.Masters(t)
	neighbour := e.createWorkspace(t, "neighbour", e.consumers)
	path := "/apis/example.com/v1/flavors"
	const body = `{"apiVersion":"example.com/v1","kind":"Flavor","metadata":{"name":"new"}}`
	for name, tc := range map[string]struct {
		config       *rest.Config
		method, path string
		want         int
	}{
		"provider lists for a consumer":                 {admin, http.MethodGet, basePath + "/clusters/" + e.consumer + path, http.StatusOK},
		"provider gets for a consumer":                  {admin, http.MethodGet, basePath + "/clusters/" + e.consumer + path + "/sweet", http.StatusOK},
		"object that is not published":                  {admin, http.MethodGet, basePath + "/clusters/" + e.consumer + path + "/secret", http.StatusNotFound},
		"logical cluster without a binding":             {admin, http.MethodGet, basePath + "/clusters/" + neighbour + path, http.StatusForbidden},
		"logical cluster without a binding, as masters": {masters, http.MethodGet, basePath + "/clusters/" + neighbour + path, http.StatusForbidden},
		"wildcard":                               {admin, http.MethodGet, basePath + "/clusters/*" + path, http.StatusBadRequest},
		"other resource":                         {admin, http.MethodGet, basePath + "/clusters/" + e.consumer + "/api/v1/secrets", http.StatusNotFound},
		"create":                                 {admin, http.MethodPost, basePath + "/clusters/" + e.consumer + path, http.StatusForbidden},
		"delete":                                 {admin, http.MethodDelete, basePath + "/clusters/" + e.consumer + path + "/sweet", http.StatusForbidden},
		"delete as masters":                      {masters, http.MethodDelete, basePath + "/clusters/" + e.consumer + path + "/sweet", http.StatusMethodNotAllowed},
		"user without permission":                {user, http.MethodGet, basePath + "/clusters/" + e.consumer + path, http.StatusForbidden},
		"discovery by a user without permission": {user, http.MethodGet, basePath + "/clusters/" + e.consumer + "/apis", http.StatusForbidden},
		"discovery":                              {admin, http.MethodGet, basePath + "/clusters/" + e.consumer + "/apis/example.com/v1", http.StatusOK},
		"OpenAPI":                                {admin, http.MethodGet, basePath + "/clusters/" + e.consumer + "/openapi/v3/apis/example.com/v1", http.StatusOK},
		"discovery of a group that is not served": {admin, http.MethodGet, basePath + "/clusters/" + e.consumer + "/apis/apis.kcp.io/v1alpha2", http.StatusNotFound},
		"slice that does not exist":               {admin, http.MethodGet, "/services/replication/" + e.provider + "/other/clusters/" + e.consumer + path, http.StatusForbidden},
		"slice that does not exist, as masters":   {masters, http.MethodGet, "/services/replication/" + e.provider + "/other/clusters/" + e.consumer + path, http.StatusNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			if response, text := shardtesting.Send(t, tc.config, tc.method, tc.path, body); response.StatusCode != tc.want {
				t.Errorf("got %d, want %d: %s", response.StatusCode, tc.want, text)
			}
		})
	}
}

func (e *env) testWatchEnds(t *testing.T) {
	events, err := e.flavorsIn(t, e.consumer).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	if err := e.consumers.Client(t, e.consumers.Admin(t)).Delete(shardtesting.In(t.Context(), e.consumer), &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{Name: "flavors"}}); err != nil {
		t.Fatal(err)
	}
	for range events.ResultChan() { // until it is closed
	}
	shardtesting.Eventually(t, "the resource not to be served", func(ctx context.Context) error {
		_, err := e.flavorsIn(t, e.consumer).List(ctx, metav1.ListOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("got %w", errors.Join(err, errors.New("want NotFound")))
		}
		return nil
	})
	if _, err := e.flavorsIn(t, e.provider).Get(t.Context(), "sweet", metav1.GetOptions{}); err != nil {
		t.Errorf("the provider's object was deleted with the binding: %v", err)
	}
	e.waitSlice(t, func(slice *cachev1alpha1.ClusterCachedResourceEndpointSlice) bool {
		return len(slice.Status.Endpoints) == 0
	})
}

func (e *env) testDeletion(t *testing.T) {
	cachedResource := &cachev1alpha1.ClusterCachedResource{ObjectMeta: metav1.ObjectMeta{Name: "flavors"}}
	in := shardtesting.In(t.Context(), e.provider)
	if err := e.c.Delete(in, cachedResource); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the deletion of the cached resource", func(ctx context.Context) error {
		if err := e.c.Get(shardtesting.In(ctx, e.provider), client.ObjectKeyFromObject(cachedResource), cachedResource); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it exists: %w", errors.Join(err, errors.New("want NotFound")))
		}
		return nil
	})
	e.waitSlice(t, func(slice *cachev1alpha1.ClusterCachedResourceEndpointSlice) bool {
		condition := conditionsv1alpha1.Get(slice, cachev1alpha1.ResourceValid)
		return condition != nil && condition.Reason == cachev1alpha1.ReasonClusterCachedResourceNotFound
	})
	for name, resource := range map[string]string{cachev1alpha1.ReasonResourceNotFound: "nothings", cachev1alpha1.ReasonResourceNotSupported: "workspaces"} {
		group := map[string]string{"nothings": "example.com", "workspaces": "tenancy.kcp.io"}[resource]
		bad := &cachev1alpha1.ClusterCachedResource{ObjectMeta: metav1.ObjectMeta{Name: resource}, Spec: cachev1alpha1.ClusterCachedResourceSpec{
			GroupVersionResource: cachev1alpha1.GroupVersionResource{Group: group, Version: "v1", Resource: resource},
		}}
		if err := e.c.Create(in, bad); err != nil {
			t.Fatal(err)
		}
		shardtesting.Eventually(t, name, func(ctx context.Context) error {
			if err := e.c.Get(shardtesting.In(ctx, e.provider), client.ObjectKeyFromObject(bad), bad); err != nil {
				return err
			}
			if condition := conditionsv1alpha1.Get(bad, cachev1alpha1.ResourceValid); condition == nil || condition.Reason != name {
				return fmt.Errorf("status %+v", bad.Status)
			}
			return nil
		})
	}
}
