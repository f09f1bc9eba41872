package cachedresources_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	cachev1alpha1 "github.com/atoll-dev/atoll/api/cache/v1alpha1"
	cacheclient "github.com/atoll-dev/atoll/cacheserver/client"
	cachetesting "github.com/atoll-dev/atoll/cacheserver/testing"
	"github.com/atoll-dev/atoll/shardserver/etcdkeys"
	"github.com/atoll-dev/atoll/shardserver/options"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// scattered is a site with root, the provider and the consumers on three shards: root, alpha and beta.
type scattered struct {
	*site
	cache    *cachetesting.Cache
	identity string
	// join is what makes a shard beta.
	join []func(*options.Options)
	// whole is the test that servers end with.
	whole *testing.T
}

func newScattered(t *testing.T) *scattered {
	t.Helper()
	cache := cachetesting.Start(t)
	with := func(shard string) func(*options.Options) {
		kubeconfig := cache.Kubeconfig(t, cache.Shard(t, shard))
		return func(o *options.Options) { o.Shard.CacheKubeconfig = kubeconfig }
	}
	root := shardtesting.Start(t, cacheAPIs, with("root"))
	s := &scattered{site: &site{root: root}, cache: cache, whole: t, join: []func(*options.Options){root.Peer(t, "beta"), cacheAPIs, with("beta")}}
	s.shard = shardtesting.StartShard(t, root, "alpha", cacheAPIs, with("alpha"))
	s.consumers = shardtesting.StartIn(t, t.TempDir(), s.join...)
	s.c = s.shard.Client(t, s.shard.Admin(t))
	root.WaitShards(t, "alpha", "beta")
	s.provider, s.consumer = s.workspace(t, "provider", s.shard), s.workspace(t, "consumer", s.consumers)
	return s
}

// workspace makes a workspace on a shard, and returns its logical cluster.
func (s *site) workspace(t *testing.T, name string, on *shardtesting.Shard) string {
	t.Helper()
	at := "beta"
	switch on {
	case s.root:
		at = "root"
	case s.shard:
		at = "alpha"
	}
	return shardtesting.NewWorkspace(t, s.root.Client(t, s.root.Admin(t)), "root", name, shardtesting.OnShard(at)).Spec.Cluster
}

// TestCachedResourcesAcrossShards is the story of TestCachedResources with provider and consumers on different shards, and
// what may happen between these.
func TestCachedResourcesAcrossShards(t *testing.T) {
	s := newScattered(t)
	s.define(t)
	s.identity = s.offer(t)
	s.export(t, s.identity)
	bind(t, s.consumers, s.consumer, s.provider, "flavors")
	view := "/services/replication/" + s.provider + "/flavors"
	s.waitSlice(t, func(slice *cachev1alpha1.ClusterCachedResourceEndpointSlice) bool {
		return len(slice.Status.Endpoints) == 1 && strings.HasSuffix(slice.Status.Endpoints[0].URL, view)
	})
	for _, part := range []struct {
		name string
		tell func(t *testing.T)
	}{
		{"a consumer reads what is offered as if it were its own", s.consumerReads},
		{"in all forms", s.forms},
		{"a consumer watches", s.consumerWatches},
		{"the virtual workspace on the consumer's shard", func(t *testing.T) { s.view(t, view) }},
		{"copies in the cache say where they are from", s.inTheCache},
		{"what is no longer selected is withdrawn, what is changed or made anew follows", s.selected},
		{"a slice refers to an offer of another shard by its path, by consent", s.byPath},
		{"without the cache consumers go on", s.cacheAway},
		{"a cache that was emptied is filled again, and nobody misses anything", s.cacheEmptied},
		{"a shard that starts without the cache has what it knew", s.restarts},
		{"all replicas of a consumer's shard have the same", s.replicas},
		{"a watch ends with the binding", s.watchEnds},
		{"copies that no consumer reads are removed", s.copiesGo},
		{"the offer goes, and with it all that was published", s.offerGoes},
		{"nothing is left in the cache", s.cacheIsEmpty},
	} {
		if !t.Run(part.name, part.tell) {
			return
		}
	}
}

// bind binds an export as soon as the shard of the consumer knows of it.
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

// list returns the names of what a consumer sees, and fails unless all of it has been presented as its own.
func (s *scattered) list(ctx context.Context, t *testing.T, cluster string) ([]string, error) {
	t.Helper()
	list, err := s.in(t, cluster).List(ctx, metav1.ListOptions{})
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

// sees waits until a consumer sees exactly these.
func (s *scattered) sees(t *testing.T, cluster string, want ...string) {
	t.Helper()
	slices.Sort(want)
	shardtesting.Eventually(t, fmt.Sprintf("seeing %v", want), func(ctx context.Context) error {
		got, err := s.list(ctx, t, cluster)
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("got %v", got)
		}
		return err
	})
}

func (s *scattered) forms(t *testing.T) {
	path := s.consumers.Admin(t).Host + "/clusters/" + s.consumer + "/apis/example.com/v1/flavors"
	for name, tc := range map[string]struct{ query, accept, want string }{
		"a table":            {"", "application/json;as=Table;g=meta.k8s.io;v=v1", `"columnDefinitions"`},
		"metadata":           {"", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", `"PartialObjectMetadataList"`},
		"YAML":               {"/sweet", "application/yaml", "taste: sweet"},
		"a page":             {"?limit=1", "application/json", `"continue":"`},
		"by name":            {"?fieldSelector=metadata.name=sour", "application/json", `"sour"`},
		"by label":           {"?labelSelector=shown=yes", "application/json", `"sour"`},
		"a watch as a list":  {"?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=1", "application/json", "k8s.io/initial-events-end"},
		"a version too high": {"?resourceVersion=99999999&resourceVersionMatch=Exact", "application/json", `"Timeout"`},
	} {
		t.Run(name, func(t *testing.T) {
			if body := accepting(t, s.consumers.Admin(t), path+tc.query, tc.accept); !strings.Contains(body, tc.want) {
				t.Errorf("got %s, want %s", body, tc.want)
			}
		})
	}
}

func (s *scattered) cached(ctx context.Context, t *testing.T) (map[string]*cacheclient.Object, error) {
	t.Helper()
	objects, _, err := s.cache.Client(t, "root").List(ctx, cacheclient.CachedResource(flavors, s.identity))
	byName := map[string]*cacheclient.Object{}
	for _, object := range objects {
		byName[object.Name] = object
	}
	return byName, err
}

func (s *scattered) inTheCache(t *testing.T) {
	found, err := s.cached(t.Context(), t)
	if err != nil {
		t.Fatal(err)
	}
	original, err := s.in(t, s.provider).Get(t.Context(), "sweet", metav1.GetOptions{})
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
	if found, err = s.cached(t.Context(), t); err != nil || found["sweet"].Meta.ResourceVersion != before {
		t.Errorf("it is written again and again: %v", err)
	}
}

func (s *scattered) label(t *testing.T, name, shown string) {
	t.Helper()
	patch := `{"metadata":{"labels":{"shown":"` + shown + `"}}}`
	if _, err := s.in(t, s.provider).Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (s *scattered) selected(t *testing.T) {
	s.sees(t, s.consumer, "bitter", "sour", "sweet")
	events, err := s.in(t, s.consumer).Watch(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	for range 3 {
		<-events.ResultChan()
	}
	s.label(t, "sour", "no")
	if event := <-events.ResultChan(); event.Type != watch.Deleted || nameOf(event) != "sour" {
		t.Errorf("got %+v", event)
	}
	s.sees(t, s.consumer, "bitter", "sweet")
	s.label(t, "sour", "yes")
	if event := <-events.ResultChan(); event.Type != watch.Added || nameOf(event) != "sour" {
		t.Errorf("got %+v", event)
	}
	before, err := s.in(t, s.consumer).Get(t.Context(), "bitter", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.in(t, s.provider).Delete(t.Context(), "bitter", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	made, err := s.in(t, s.provider).Create(t.Context(), flavor("bitter", "yes"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the new one", func(ctx context.Context) error {
		got, err := s.in(t, s.consumer).Get(ctx, "bitter", metav1.GetOptions{})
		if err == nil && (got.GetUID() != made.GetUID() || got.GetUID() == before.GetUID()) {
			err = fmt.Errorf("it is %s", got.GetUID())
		}
		return err
	})
	s.offers(t, `{"spec":{"labelSelector":{"matchLabels":{"shown":"no"}}}}`)
	s.sees(t, s.consumer, "hidden", "secret")
	s.offers(t, `{"spec":{"labelSelector":{"matchLabels":{"shown":"yes"}}}}`)
	s.sees(t, s.consumer, "bitter", "sour", "sweet")
}

func (s *scattered) offers(t *testing.T, patch string) {
	t.Helper()
	offer := &cachev1alpha1.ClusterCachedResource{ObjectMeta: metav1.ObjectMeta{Name: "flavors"}}
	if err := s.c.Patch(shardtesting.In(t.Context(), s.provider), offer, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
}

func nameOf(event watch.Event) string {
	object, ok := event.Object.(*unstructured.Unstructured)
	if !ok {
		return fmt.Sprintf("%T", event.Object)
	}
	return object.GetName()
}

// byPath: a workspace of the consumer's shard shows the offer by an export of its own, to one of root's shard.
func (s *scattered) byPath(t *testing.T) {
	reseller, customer := s.workspace(t, "reseller", s.consumers), s.workspace(t, "customer", s.root)
	in := shardtesting.In(t.Context(), reseller)
	admin, user := s.consumers.Client(t, s.consumers.Admin(t)), s.consumers.Client(t, s.consumers.User(t))
	granted := func(c client.Client, cluster string, rules ...rbacv1.PolicyRule) {
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
	granted(admin, reseller, rbacv1.PolicyRule{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}},
		rbacv1.PolicyRule{Verbs: []string{"access"}, NonResourceURLs: []string{"/"}})
	slice := func() *cachev1alpha1.ClusterCachedResourceEndpointSlice {
		return &cachev1alpha1.ClusterCachedResourceEndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "tastes"}, Spec: cachev1alpha1.ClusterCachedResourceEndpointSliceSpec{
			ClusterCachedResource: cachev1alpha1.ClusterCachedResourceReference{Path: "root:provider", Name: "flavors"},
			APIExport:             cachev1alpha1.ExportBindingReference{Name: "tastes"},
		}}
	}
	shardtesting.Eventually(t, "being refused for want of consent", func(ctx context.Context) error {
		if err := user.Create(shardtesting.In(ctx, reseller), slice()); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "no permission to bind") {
			return fmt.Errorf("got %w", errors.Join(err, errors.New("want Forbidden")))
		}
		return nil
	})
	granted(s.c, s.provider, rbacv1.PolicyRule{Verbs: []string{"bind"}, APIGroups: []string{"cache.kcp.io"}, Resources: []string{"clustercachedresources"}, ResourceNames: []string{"flavors"}},
		rbacv1.PolicyRule{Verbs: []string{"access"}, NonResourceURLs: []string{"/"}})
	shardtesting.Eventually(t, "being allowed", func(ctx context.Context) error {
		return user.Create(shardtesting.In(ctx, reseller), slice())
	})
	described, export := shown("tastes", s.identity)
	for _, object := range []client.Object{described, export} {
		if err := admin.Create(in, object); err != nil {
			t.Fatal(err)
		}
	}
	bind(t, s.root, customer, reseller, "tastes")
	customers := s.objects(t, s.root.Admin(t), "/clusters/"+customer)
	shardtesting.Eventually(t, "the customer sees flavors", func(ctx context.Context) error {
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

func (s *scattered) cacheAway(t *testing.T) {
	if err := s.cache.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.in(t, s.provider).Create(t.Context(), flavor("salty", "yes"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := s.in(t, s.provider).Delete(t.Context(), "sour", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if got, err := s.list(t.Context(), t, s.consumer); err != nil || len(got) != 3 {
		t.Errorf("without the cache: %v, %v", got, err)
	}
}

func (s *scattered) cacheEmptied(t *testing.T) {
	if err := os.RemoveAll(filepath.Join(s.cache.Directory, "root")); err != nil {
		t.Fatal(err)
	}
	s.cache.Restart(s.whole)
	shardtesting.Eventually(t, "what happened meanwhile", func(ctx context.Context) error {
		got, err := s.list(ctx, t, s.consumer)
		if err != nil {
			t.Errorf("while the cache is filled: %v", err)
			return err
		}
		if !slices.Contains(got, "sweet") || !slices.Contains(got, "bitter") {
			t.Errorf("while the cache is filled: %v", got)
		}
		if !slices.Equal(got, []string{"bitter", "salty", "sweet"}) {
			return fmt.Errorf("got %v", got)
		}
		return nil
	})
}

func (s *scattered) restarts(t *testing.T) {
	if err := s.cache.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := s.consumers.Stop(); err != nil {
		t.Fatal(err)
	}
	s.consumers = shardtesting.StartIn(s.whole, s.consumers.Directory, s.join...)
	s.sees(t, s.consumer, "bitter", "salty", "sweet")
	s.cache.Restart(s.whole)
	if _, err := s.in(t, s.provider).Create(t.Context(), flavor("smoky", "yes"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.sees(t, s.consumer, "bitter", "salty", "smoky", "sweet") // when the slice has the shard's new address, too
}

func (s *scattered) copiesGo(t *testing.T) {
	for name, shard := range map[string]*shardtesting.Shard{"beta": s.consumers, "root": s.root} {
		etcd, err := etcdkeys.Connect(shard.Server.StorageTransport())
		if err != nil {
			t.Fatal(err)
		}
		shardtesting.Eventually(t, "the end of the copies of "+name, func(ctx context.Context) error {
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

func (s *scattered) cacheIsEmpty(t *testing.T) {
	if found, err := s.cached(t.Context(), t); err != nil || len(found) > 0 {
		t.Errorf("in the cache: %v, %v", found, err)
	}
}
