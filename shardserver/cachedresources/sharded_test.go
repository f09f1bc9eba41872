package cachedresources_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	cachev1alpha1 "github.com/atoll-dev/atoll/api/cache/v1alpha1"
	cacheclient "github.com/atoll-dev/atoll/cacheserver/client"
	cachetesting "github.com/atoll-dev/atoll/cacheserver/testing"
	"github.com/atoll-dev/atoll/shardserver/etcdkeys"
	"github.com/atoll-dev/atoll/shardserver/options"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// shardedEnv is an installation with root, the provider and the consumers on three shards: root, alpha and beta.
type shardedEnv struct {
	*env
	identity string
	backend  *shardtesting.SubresourceBackend
	// joinOptions are the options of shard beta.
	joinOptions []func(*options.Options)
	// parent is the test that the servers end with.
	parent *testing.T
}

func newShardedEnv(t *testing.T) *shardedEnv {
	t.Helper()
	cache := cachetesting.Start(t)
	withCache := func(shard string) func(*options.Options) {
		kubeconfig := cache.Kubeconfig(t, cache.Shard(t, shard))
		return func(o *options.Options) { o.Shard.CacheKubeconfig = kubeconfig }
	}
	backend := shardtesting.NewSubresourceBackend(t)
	root := shardtesting.Start(t, cacheAPIs, withCache("root"), backend.Trust)
	s := &shardedEnv{env: &env{root: root, cache: cache}, backend: backend, parent: t, joinOptions: []func(*options.Options){root.Peer(t, "beta"), cacheAPIs, withCache("beta"), backend.Trust}}
	s.shard = shardtesting.StartShard(t, root, "alpha", cacheAPIs, withCache("alpha"), backend.Trust)
	s.consumers = shardtesting.StartIn(t, t.TempDir(), s.joinOptions...)
	s.c = s.shard.Client(t, s.shard.Admin(t))
	root.WaitShards(t, "alpha", "beta")
	s.provider, s.consumer = s.createWorkspace(t, "provider", s.shard), s.createWorkspace(t, "consumer", s.consumers)
	return s
}

// createWorkspace creates a workspace on a shard, and returns its logical cluster.
func (e *env) createWorkspace(t *testing.T, name string, shard *shardtesting.Shard) string {
	t.Helper()
	shardName := "beta"
	switch shard {
	case e.root:
		shardName = "root"
	case e.shard:
		shardName = "alpha"
	}
	return shardtesting.NewWorkspace(t, e.root.Client(t, e.root.Admin(t)), "root", name, shardtesting.OnShard(shardName)).Spec.Cluster
}

// TestCachedResourcesAcrossShards is TestCachedResources with provider and consumers on different shards, and with
// outages of the cache.
func TestCachedResourcesAcrossShards(t *testing.T) {
	s := newShardedEnv(t)
	s.createCRD(t)
	s.identity = s.cachedResource(t)
	s.createExport(t, s.identity)
	bind(t, s.consumers, s.consumer, s.provider, "flavors")
	view := "/services/replication/" + s.provider + "/flavors"
	s.waitSlice(t, func(slice *cachev1alpha1.ClusterCachedResourceEndpointSlice) bool {
		return len(slice.Status.Endpoints) == 1 && strings.HasSuffix(slice.Status.Endpoints[0].URL, view)
	})
	for _, step := range []struct {
		name string
		run  func(t *testing.T)
	}{
		{"consumer reads the published objects as its own", s.testConsumerReads},
		{"media types and list options", s.testMediaTypes},
		{"consumer watches", s.testConsumerWatches},
		{"virtual workspace on the consumer's shard", func(t *testing.T) { s.basePath(t, view) }},
		{"virtual workspace of the export on the consumer's shard", s.testExportView},
		{"virtual workspace of the export on a shard without consumers", s.testExportViewWithoutConsumers},
		{"virtual workspace of an export that claims the cached resource", s.testClaimed},
		{"custom subresources of an export of another shard", s.testSubresources},
		{"published objects are annotated with their origin", s.testCacheContent},
		{"published objects follow the selected ones", s.testSelection},
		{"consumers do not see omitted fields", s.testOmittedFields},
		{"a slice selects what the consumers of its export see", s.testSliceSelector},
		{"consumers on all shards get equal answers", s.testEqualAnswers},
		{"slice references a cached resource of another shard by path, with permission", s.testReferenceByPath},
		{"consumers read without the cache", s.testCacheUnavailable},
		{"emptied cache is refilled without interruption for consumers", s.testCacheEmptied},
		{"shard restarts without the cache", s.testRestart},
		{"all servers of a consumer's shard serve the same", s.testReplicas},
		{"watch ends with the binding", s.testWatchEnds},
		{"replicas without consumers are deleted", s.testReplicasDeleted},
		{"cached resource and published objects are deleted", s.testDeletion},
		{"cache is empty", s.testCacheIsEmpty},
	} {
		if !t.Run(step.name, step.run) {
			return
		}
	}
}

// bind binds an export as soon as the shard of the consumer has the export.
func bind(t *testing.T, shard *shardtesting.Shard, cluster, provider, export string) {
	t.Helper()
	c := shard.Client(t, shard.Admin(t))
	binding := &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{Name: export}, Spec: apisv1alpha2.APIBindingSpec{
		Reference: apisv1alpha2.BindingReference{Export: &apisv1alpha2.ExportBindingReference{Path: provider, Name: export}},
	}}
	shardtesting.Eventually(t, "binding "+export, func(ctx context.Context) error {
		return client.IgnoreAlreadyExists(c.Create(shardtesting.In(ctx, cluster), binding))
	})
}

// listNames returns the names of the objects that a consumer reads, and fails unless all are presented as its own.
func (s *shardedEnv) listNames(ctx context.Context, t *testing.T, cluster string) ([]string, error) {
	t.Helper()
	list, err := s.flavorsIn(t, cluster).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, item := range list.Items {
		annotations := item.GetAnnotations()
		if annotations["kcp.io/cluster"] != cluster || annotations["kcp.io/shard"] != "" || annotations[cacheclient.OriginalUIDAnnotation] != "" || annotations[cacheclient.OriginalResourceVersionAnnotation] != "" {
			t.Errorf("%s has annotations %v", item.GetName(), annotations)
		}
		names = append(names, item.GetName())
	}
	slices.Sort(names)
	return names, nil
}

// eventuallyLists waits until a consumer reads exactly these.
func (s *shardedEnv) eventuallyLists(t *testing.T, cluster string, want ...string) {
	t.Helper()
	slices.Sort(want)
	shardtesting.Eventually(t, fmt.Sprintf("the consumer to list %v", want), func(ctx context.Context) error {
		got, err := s.listNames(ctx, t, cluster)
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("got %v", got)
		}
		return err
	})
}

func (s *shardedEnv) testMediaTypes(t *testing.T) {
	path := "/clusters/" + s.consumer + "/apis/example.com/v1/flavors"
	for name, tc := range map[string]struct{ query, accept, want string }{
		"table":                     {"", "application/json;as=Table;g=meta.k8s.io;v=v1", `"columnDefinitions"`},
		"metadata":                  {"", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", `"PartialObjectMetadataList"`},
		"YAML":                      {"/sweet", "application/yaml", "taste: sweet"},
		"page":                      {"?limit=1", "application/json", `"continue":"`},
		"by name":                   {"?fieldSelector=metadata.name=sour", "application/json", `"sour"`},
		"by label":                  {"?labelSelector=shown=yes", "application/json", `"sour"`},
		"watch list":                {"?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=1", "application/json", "k8s.io/initial-events-end"},
		"resource version too high": {"?resourceVersion=99999999&resourceVersionMatch=Exact", "application/json", `"Timeout"`},
	} {
		t.Run(name, func(t *testing.T) {
			if _, body := shardtesting.Send(t, s.consumers.Admin(t), http.MethodGet, path+tc.query, "", "Accept", tc.accept); !strings.Contains(body, tc.want) {
				t.Errorf("got %s, want %s", body, tc.want)
			}
		})
	}
}

func (s *shardedEnv) listCached(ctx context.Context, t *testing.T) (map[string]*cacheclient.Object, error) {
	t.Helper()
	objects, _, err := s.cache.Client(t, "root").List(ctx, cacheclient.CachedResource(flavors, s.identity))
	byName := map[string]*cacheclient.Object{}
	for _, object := range objects {
		byName[object.Name] = object
	}
	return byName, err
}

func (s *shardedEnv) testCacheContent(t *testing.T) {
	found, err := s.listCached(t.Context(), t)
	if err != nil {
		t.Fatal(err)
	}
	original, err := s.flavorsIn(t, s.provider).Get(t.Context(), "sweet", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	sweet := found["sweet"]
	if sweet == nil || found["secret"] != nil || found["complete"] == nil {
		t.Fatalf("in the cache: %v", found)
	}
	annotations := sweet.Meta.Annotations
	if sweet.Meta.UID != original.GetUID() || annotations["kcp.io/shard"] != "alpha" || annotations["kcp.io/cluster"] != s.provider ||
		annotations["cache.kcp.io/original-resource-UID"] != string(original.GetUID()) || annotations["cache.kcp.io/original-resource-version"] != original.GetResourceVersion() {
		t.Errorf("got %s", sweet.Raw)
	}
	before := sweet.Meta.ResourceVersion
	if found, err = s.listCached(t.Context(), t); err != nil || found["sweet"].Meta.ResourceVersion != before {
		t.Errorf("an unchanged object was written again: %v", err)
	}
	delete(found, "complete") // only shards list it
	s.expectCopies(t, "alpha", slices.Sorted(maps.Keys(found))...)
}

func (s *shardedEnv) setLabel(t *testing.T, name, shown string) {
	t.Helper()
	patch := `{"metadata":{"labels":{"shown":"` + shown + `"}}}`
	if _, err := s.flavorsIn(t, s.provider).Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (s *shardedEnv) testSelection(t *testing.T) {
	s.eventuallyLists(t, s.consumer, "bitter", "sour", "sweet")
	events, err := s.flavorsIn(t, s.consumer).Watch(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	for range 3 {
		<-events.ResultChan()
	}
	s.setLabel(t, "sour", "no")
	if event := <-events.ResultChan(); event.Type != watch.Deleted || objectName(event) != "sour" {
		t.Errorf("got %+v", event)
	}
	s.eventuallyLists(t, s.consumer, "bitter", "sweet")
	s.setLabel(t, "sour", "yes")
	if event := <-events.ResultChan(); event.Type != watch.Added || objectName(event) != "sour" {
		t.Errorf("got %+v", event)
	}
	before, err := s.flavorsIn(t, s.consumer).Get(t.Context(), "bitter", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.flavorsIn(t, s.provider).Delete(t.Context(), "bitter", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	created, err := s.flavorsIn(t, s.provider).Create(t.Context(), newFlavor("bitter", "yes"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the recreated object", func(ctx context.Context) error {
		got, err := s.flavorsIn(t, s.consumer).Get(ctx, "bitter", metav1.GetOptions{})
		if err == nil && (got.GetUID() != created.GetUID() || got.GetUID() == before.GetUID()) {
			err = fmt.Errorf("its UID is %s", got.GetUID())
		}
		return err
	})
	s.patchCachedResource(t, `{"spec":{"labelSelector":{"matchLabels":{"shown":"no"}}}}`)
	s.eventuallyLists(t, s.consumer, "hidden", "secret")
	s.patchCachedResource(t, `{"spec":{"labelSelector":{"matchLabels":{"shown":"yes"}}}}`)
	s.eventuallyLists(t, s.consumer, "bitter", "sour", "sweet")
}

// testSliceSelector: of what is published, the slice of an export shows some, on the shard of the provider and on others.
func (s *shardedEnv) testSliceSelector(t *testing.T) {
	shown, err := s.listNames(t.Context(), t, s.consumer)
	if err != nil || len(shown) < 2 {
		t.Fatalf("without selector, consumers see %v, %v", shown, err)
	}
	hidden := shown[0]
	c := s.shardOf(s.provider).Client(t, s.shardOf(s.provider).Admin(t))
	ctx := shardtesting.In(t.Context(), s.provider)
	if _, err := s.flavorsIn(t, s.provider).Patch(t.Context(), hidden, types.MergePatchType, []byte(`{"metadata":{"labels":{"tier":"premium"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	events, err := s.flavorsIn(t, s.consumer).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	set := func(selector string) {
		t.Helper()
		slice := &cachev1alpha1.ClusterCachedResourceEndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "flavors"}}
		if err := c.Patch(ctx, slice, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"cache.kcp.io/label-selector":`+selector+`}}}`))); err != nil {
			t.Fatal(err)
		}
	}
	set(`"tier!=premium"`)
	s.eventuallyLists(t, s.consumer, shown[1:]...)
	if _, err := s.flavorsIn(t, s.consumer).Get(t.Context(), hidden, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("getting what is not selected: %v", err)
	}
	for range events.ResultChan() { // the watch ends with the change
	}
	if err := c.Patch(ctx, &cachev1alpha1.ClusterCachedResourceEndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "flavors"}},
		client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"cache.kcp.io/label-selector":"("}}}`))); !apierrors.IsInvalid(err) {
		t.Errorf("setting an invalid selector: %v", err)
	}
	set("null")
	s.eventuallyLists(t, s.consumer, shown...)
}

// testOmittedFields: a provider hides a field, and whatever in the metadata repeats it, on its own shard and on others.
func (s *shardedEnv) testOmittedFields(t *testing.T) {
	const secret = "internal-only"
	local := s.createWorkspace(t, "local-consumer", s.shardOf(s.provider))
	bind(t, s.shardOf(s.provider), local, s.provider, "flavors")
	applied := map[string]any{"apiVersion": "example.com/v1", "kind": "Flavor",
		"metadata": map[string]any{"name": "sweet", "annotations": map[string]any{corev1.LastAppliedConfigAnnotation: secret}},
		"spec":     map[string]any{"taste": "sweet", "internal": map[string]any{"recipe": secret}}}
	if _, err := s.flavorsIn(t, s.provider).Apply(t.Context(), "sweet", &unstructured.Unstructured{Object: applied}, metav1.ApplyOptions{FieldManager: "test"}); err != nil {
		t.Fatal(err)
	}
	view := "/services/apiexport/" + s.provider + "/flavors/clusters/"
	readers := map[string]dynamic.ResourceInterface{
		"a consumer on another shard": s.flavorsIn(t, s.consumer), "a consumer on the provider's shard": s.flavorsClient(t, s.shardOf(s.provider).Admin(t), "/clusters/"+local),
		"the view of the export": s.flavorsClient(t, s.consumers.Admin(t), view+"*"),
	}
	read := func(visible bool) {
		t.Helper()
		for name, flavors := range readers {
			shardtesting.Eventually(t, fmt.Sprintf("%s to read sweet, the field visible: %v", name, visible), func(ctx context.Context) error {
				list, err := flavors.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=sweet"})
				if err != nil {
					return err
				}
				text, err := list.MarshalJSON()
				if err != nil {
					return err
				}
				found := strings.Contains(string(text), secret) || strings.Contains(string(text), "f:internal")
				if len(list.Items) == 0 || found != visible || !strings.Contains(string(text), `"taste":"sweet"`) {
					return fmt.Errorf("got %s", text)
				}
				return nil
			})
		}
	}
	read(true)
	s.patchCachedResource(t, `{"metadata":{"annotations":{"cache.kcp.io/omitted-fields":"spec.internal"}}}`)
	read(false)
	events, err := s.flavorsIn(t, s.consumer).Watch(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		t.Fatal(err)
	}
	for event := range events.ResultChan() {
		object, ok := event.Object.(*unstructured.Unstructured)
		if !ok {
			break // the watch ends with the change below
		}
		if object.GetName() != "sweet" {
			continue
		}
		if _, found, _ := unstructured.NestedFieldNoCopy(object.Object, "spec", "internal"); found {
			t.Errorf("a watch delivers %v", object.Object)
		}
		s.patchCachedResource(t, `{"metadata":{"annotations":{"cache.kcp.io/omitted-fields":null}}}`)
	}
	shardtesting.Eventually(t, "the field to be shown again", func(ctx context.Context) error {
		got, err := s.flavorsIn(t, s.consumer).Get(ctx, "sweet", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if recipe, _, _ := unstructured.NestedString(got.Object, "spec", "internal", "recipe"); recipe != secret {
			return fmt.Errorf("got %v", got.Object)
		}
		return nil
	})
	binding := &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{Name: "flavors"}}
	if err := s.c.Delete(shardtesting.In(t.Context(), local), binding); err != nil {
		t.Fatal(err)
	}
	s.waitSlice(t, func(slice *cachev1alpha1.ClusterCachedResourceEndpointSlice) bool {
		return len(slice.Status.Endpoints) == 1
	})
}

func (s *shardedEnv) patchCachedResource(t *testing.T, patch string) {
	t.Helper()
	cachedResource := &cachev1alpha1.ClusterCachedResource{ObjectMeta: metav1.ObjectMeta{Name: "flavors"}}
	if err := s.c.Patch(shardtesting.In(t.Context(), s.provider), cachedResource, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
}

func objectName(event watch.Event) string {
	object, ok := event.Object.(*unstructured.Unstructured)
	if !ok {
		return fmt.Sprintf("%T", event.Object)
	}
	return object.GetName()
}

// testReferenceByPath: a workspace on the consumer's shard serves the cached resource by its own export, to a consumer
// on root's shard.
func (s *shardedEnv) testReferenceByPath(t *testing.T) {
	reseller, customer := s.createWorkspace(t, "reseller", s.consumers), s.createWorkspace(t, "customer", s.root)
	in := shardtesting.In(t.Context(), reseller)
	admin, user := s.consumers.Client(t, s.consumers.Admin(t)), s.consumers.Client(t, s.consumers.User(t))
	grant := func(c client.Client, cluster string, rules ...rbacv1.PolicyRule) {
		t.Helper()
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "of-user"}, Rules: rules}
		binding := &rbacv1.ClusterRoleBinding{ObjectMeta: role.ObjectMeta,
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "system:authenticated"}}}
		for _, object := range []client.Object{role, binding} {
			if err := c.Create(shardtesting.In(t.Context(), cluster), object); err != nil {
				t.Fatal(err)
			}
		}
	}
	grant(admin, reseller, rbacv1.PolicyRule{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}},
		rbacv1.PolicyRule{Verbs: []string{"access"}, NonResourceURLs: []string{"/"}})
	slice := func() *cachev1alpha1.ClusterCachedResourceEndpointSlice {
		return &cachev1alpha1.ClusterCachedResourceEndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "tastes"}, Spec: cachev1alpha1.ClusterCachedResourceEndpointSliceSpec{
			ClusterCachedResource: cachev1alpha1.ClusterCachedResourceReference{Path: "root:provider", Name: "flavors"},
			APIExport:             cachev1alpha1.ExportBindingReference{Name: "tastes"},
		}}
	}
	shardtesting.Eventually(t, "the refusal without permission", func(ctx context.Context) error {
		if err := user.Create(shardtesting.In(ctx, reseller), slice()); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "no permission to bind") {
			return fmt.Errorf("got %w", errors.Join(err, errors.New("want Forbidden")))
		}
		return nil
	})
	grant(s.c, s.provider, rbacv1.PolicyRule{Verbs: []string{"bind"}, APIGroups: []string{"cache.kcp.io"}, Resources: []string{"clustercachedresources"}, ResourceNames: []string{"flavors"}},
		rbacv1.PolicyRule{Verbs: []string{"access"}, NonResourceURLs: []string{"/"}})
	shardtesting.Eventually(t, "the creation with permission", func(ctx context.Context) error {
		return user.Create(shardtesting.In(ctx, reseller), slice())
	})
	resourceSchema, export := newExport("tastes", s.identity)
	for _, object := range []client.Object{resourceSchema, export} {
		if err := admin.Create(in, object); err != nil {
			t.Fatal(err)
		}
	}
	bind(t, s.root, customer, reseller, "tastes")
	customers := s.flavorsClient(t, s.root.Admin(t), "/clusters/"+customer)
	shardtesting.Eventually(t, "the customer to list flavors", func(ctx context.Context) error {
		list, err := customers.List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) != 3 {
			err = fmt.Errorf("%d objects", len(list.Items))
		}
		return err
	})
	if err := s.root.Client(t, s.root.Admin(t)).Delete(shardtesting.In(t.Context(), customer), &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{Name: "tastes"}}); err != nil {
		t.Fatal(err)
	}
}

func (s *shardedEnv) testCacheUnavailable(t *testing.T) {
	if err := s.cache.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.flavorsIn(t, s.provider).Create(t.Context(), newFlavor("salty", "yes"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := s.flavorsIn(t, s.provider).Delete(t.Context(), "sour", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if got, err := s.listNames(t.Context(), t, s.consumer); err != nil || len(got) != 3 {
		t.Errorf("without the cache: %v, %v", got, err)
	}
}

func (s *shardedEnv) testCacheEmptied(t *testing.T) {
	if err := os.RemoveAll(filepath.Join(s.cache.Directory, "root")); err != nil {
		t.Fatal(err)
	}
	s.cache.Restart(s.parent)
	shardtesting.Eventually(t, "the objects that changed in the meantime", func(ctx context.Context) error {
		got, err := s.listNames(ctx, t, s.consumer)
		if err != nil {
			t.Errorf("while the cache is refilled: %v", err)
			return err
		}
		if !slices.Contains(got, "sweet") || !slices.Contains(got, "bitter") {
			t.Errorf("while the cache is refilled: %v", got)
		}
		if !slices.Equal(got, []string{"bitter", "salty", "sweet"}) {
			return fmt.Errorf("got %v", got)
		}
		return nil
	})
}

func (s *shardedEnv) testRestart(t *testing.T) {
	if err := s.cache.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := s.consumers.Stop(); err != nil {
		t.Fatal(err)
	}
	s.consumers = shardtesting.StartIn(s.parent, s.consumers.Directory, s.joinOptions...)
	s.eventuallyLists(t, s.consumer, "bitter", "salty", "sweet")
	s.cache.Restart(s.parent)
	if _, err := s.flavorsIn(t, s.provider).Create(t.Context(), newFlavor("smoky", "yes"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.eventuallyLists(t, s.consumer, "bitter", "salty", "smoky", "sweet") // also after the slice has the shard's new address
}

func (s *shardedEnv) testReplicasDeleted(t *testing.T) {
	for name, shard := range map[string]*shardtesting.Shard{"beta": s.consumers, "root": s.root} {
		etcd, err := etcdkeys.Connect(shard.Server.StorageTransport())
		if err != nil {
			t.Fatal(err)
		}
		shardtesting.Eventually(t, "the deletion of the replicas of "+name, func(ctx context.Context) error {
			found, err := etcd.Get(ctx, "/registry/~copies/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
			if err == nil && len(found.Kvs) > 0 {
				err = fmt.Errorf("%d keys, such as %s", len(found.Kvs), found.Kvs[0].Key)
			}
			return err
		})
		if err := etcd.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func (s *shardedEnv) testCacheIsEmpty(t *testing.T) {
	if found, err := s.listCached(t.Context(), t); err != nil || len(found) > 0 {
		t.Errorf("in the cache: %v, %v", found, err)
	}
}
