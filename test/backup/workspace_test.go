package backup

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/internal/etcdtest"
	"github.com/atoll-dev/atoll/internal/workspacerestore"
	"github.com/atoll-dev/atoll/shardserver/options"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// longWait is for deletions on a machine with much other work.
const longWait = 3 * time.Minute

// manyConfigMaps are more than a page of what is read and written at once.
const manyConfigMaps = 130

// chained is the number of config maps that own each other.
const chained = 3

var (
	widgets = schema.GroupResource{Group: "example.com", Resource: "widgets"}
	gadgets = schema.GroupResource{Group: "example.com", Resource: "gadgets"}
)

// restorable is a shard with workspaces that are in a backup.
type restorable struct {
	*installation
	shard   *shardtesting.Shard
	masters client.Client
	parent  string
	// team has content, and is bound to an export of provider and to one of its own. tall a workspace below it, and lonely is bound to an export of gone.
	team, tall, lonely *tenancyv1alpha1.Workspace
	// stale has an object in a version that its export in provider has in the backup, and no longer.
	stale          *tenancyv1alpha1.Workspace
	gone, provider string
	token          string
	// saved are the keys of team in the backup.
	saved map[string]string
	// workspaceKeys is the prefix of the Workspaces in parent.
	workspaceKeys string
}

// TestRestoreWorkspace saves a shard, deletes workspaces, and brings them back while the shard runs.
func TestRestoreWorkspace(t *testing.T) {
	etcd := etcdtest.Start(t)
	r := &restorable{installation: newInstallation(t, startS3(t), etcd)}
	r.shard = shardtesting.Start(t, func(o *options.Options) {
		transport := &o.Etcd.StorageConfig.Transport
		transport.ServerList, transport.TrustedCAFile, transport.CertFile, transport.KeyFile = []string{etcd.Endpoint}, etcd.CAFile, etcd.CertFile, etcd.KeyFile
		o.FeatureGates = append(o.FeatureGates, "LogicalClusterMigration=true")
	})
	r.masters = r.shard.Client(t, r.shard.Masters(t))
	r.createWorkspaces(t)
	r.backUp(t)

	output, err := r.restoreWorkspace(t, "root:acme:team")
	expectError(t, output, err, "workspace root:acme:team exists, or is still being deleted")
	output, err = r.restoreWorkspace(t, "root:acme:nobody")
	expectError(t, output, err, "has no workspace root:acme:nobody: it did not exist at ")

	t.Run("Team", r.testTeam)
	t.Run("Children", func(t *testing.T) {
		child := &tenancyv1alpha1.Workspace{}
		if err := r.masters.Get(shardtesting.In(t.Context(), r.tall.Spec.Cluster), client.ObjectKey{Name: "child"}, child); err != nil {
			t.Fatal(err)
		}
		r.delete(t, r.tall)
		r.expectNothing(t, child.Spec.Cluster)
		output, err := r.restoreWorkspace(t, "root:acme:tall")
		expectError(t, output, err, "has 1 workspaces in the backup (child)")
		r.expectNothing(t, r.tall.Spec.Cluster)
	})
	t.Run("Exports", r.testExports)
	t.Run("Versions", r.testVersions)
	t.Run("DamagedContent", r.testDamaged)
	t.Run("LeftBehind", r.testLeftBehind)
	t.Run("Parent", func(t *testing.T) {
		parent := &tenancyv1alpha1.Workspace{}
		if err := r.masters.Get(shardtesting.In(t.Context(), "root"), client.ObjectKey{Name: "acme"}, parent); err != nil {
			t.Fatal(err)
		}
		r.delete(t, parent)
		output, err := r.restoreWorkspace(t, "root:acme:team")
		expectError(t, output, err, "the parent of root:acme:team")
		r.expectNothing(t, r.team.Spec.Cluster)
	})
}

// backUp makes a backup in which team is as it is afterwards: controllers may still write to it before.
func (r *restorable) backUp(t *testing.T) {
	t.Helper()
	shardtesting.EventuallyWithin(t, longWait, "a backup of what does not change", func(context.Context) error {
		r.saved = r.lasting(t, r.team.Spec.Cluster)
		if r.mustCreate(t); !maps.Equal(r.saved, r.lasting(t, r.team.Spec.Cluster)) {
			return errors.New("workspace team has changed meanwhile")
		}
		return nil
	})
}

// restoreWorkspace runs the program.
func (r *restorable) restoreWorkspace(t *testing.T, path string) (string, error) {
	t.Helper()
	return r.read(t, "restore-workspace", "--workspace", path, "--work-dir", t.TempDir())
}

func (r *restorable) createWorkspaces(t *testing.T) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	r.provider = r.shard.NewWorkspace(t, "root", "provider").Spec.Cluster
	r.gone = r.shard.NewWorkspace(t, "root", "gone").Spec.Cluster
	r.parent = r.shard.NewWorkspace(t, "root", "acme").Spec.Cluster
	r.team, r.tall, r.lonely = r.shard.NewWorkspace(t, r.parent, "team"), r.shard.NewWorkspace(t, r.parent, "tall"), r.shard.NewWorkspace(t, r.parent, "lonely")
	r.shard.NewWorkspace(t, r.tall.Spec.Cluster, "child")
	r.stale = r.shard.NewWorkspace(t, r.parent, "stale")
	for _, cluster := range []string{r.provider, r.gone} {
		r.shard.NewExport(t, cluster, "widgets", widgets, "Widget")
	}
	for _, cluster := range []string{r.provider, r.team.Spec.Cluster} {
		r.shard.NewExport(t, cluster, "gadgets", gadgets, "Gadget")
	}
	r.shard.Bind(t, r.team.Spec.Cluster, r.provider, "widgets")
	r.shard.Bind(t, r.team.Spec.Cluster, r.team.Spec.Cluster, "gadgets")
	r.shard.Bind(t, r.stale.Spec.Cluster, r.provider, "gadgets")
	_, err := r.custom(t, r.stale.Spec.Cluster, gadgets).Create(t.Context(), newObject(gadgets.Group, "Gadget", "stale"), metav1.CreateOptions{})
	must(err)
	r.shard.Bind(t, r.lonely.Spec.Cluster, r.gone, "widgets")

	in := shardtesting.In(t.Context(), r.team.Spec.Cluster)
	for n := range manyConfigMaps {
		must(r.masters.Create(in, newConfigMap(fmt.Sprintf("config-%d", n))))
	}
	// Each has the one before as its owner.
	for n, owner := 0, (*corev1.ConfigMap)(nil); n < chained; n++ {
		link := newConfigMap(fmt.Sprintf("chain-%d", n))
		if owner != nil {
			link.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}}
		}
		must(r.masters.Create(in, link))
		owner = link
	}
	_, err = r.widgets(t).Create(t.Context(), newWidget("bound"), metav1.CreateOptions{})
	must(err)
	must(r.masters.Create(in, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot", Namespace: metav1.NamespaceDefault}}))
	must(r.masters.Create(in, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "robot"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceDefault, Name: "robot"}},
	}))
	kubernetes := r.shard.Kubernetes(t, shardtesting.At(r.shard.Masters(t), r.team.Spec.Cluster))
	request, err := kubernetes.CoreV1().ServiceAccounts(metav1.NamespaceDefault).CreateToken(t.Context(), "robot", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	must(err)
	r.token = request.Status.Token
	for key := range r.stored(t, r.parent) {
		if at := strings.LastIndex(key, "/"); strings.Contains(key, "/tenancy.kcp.io/workspaces/") {
			r.workspaceKeys = key[:at+1]
		}
	}
}

func newConfigMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault}, Data: map[string]string{"key": name}}
}

func newWidget(name string) *unstructured.Unstructured {
	return newObject(widgets.Group, "Widget", name)
}

func newObject(group, kind, name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"color": "red"}}}
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind})
	object.SetNamespace(metav1.NamespaceDefault)
	object.SetName(name)
	return object
}

// widgets are the objects of the bound resource in team.
func (r *restorable) widgets(t *testing.T) dynamic.ResourceInterface {
	t.Helper()
	return r.custom(t, r.team.Spec.Cluster, widgets)
}

func (r *restorable) custom(t *testing.T, cluster string, resource schema.GroupResource) dynamic.ResourceInterface {
	t.Helper()
	c, err := dynamic.NewForConfig(shardtesting.At(r.shard.Masters(t), cluster))
	if err != nil {
		t.Fatal(err)
	}
	return c.Resource(resource.WithVersion("v1")).Namespace(metav1.NamespaceDefault)
}

// stored returns the keys of a logical cluster with their values.
func (r *restorable) stored(t *testing.T, cluster string) map[string]string {
	t.Helper()
	return r.keys(t, cluster, true)
}

// lasting is stored without what expires, such as Events, which is not restored.
func (r *restorable) lasting(t *testing.T, cluster string) map[string]string {
	t.Helper()
	return r.keys(t, cluster, false)
}

func (r *restorable) keys(t *testing.T, cluster string, expiring bool) map[string]string {
	t.Helper()
	found, err := r.etcdClient.Get(t.Context(), "/registry/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, kv := range found.Kvs {
		if _, of, _, ok := workspacerestore.SplitKey("/registry", string(kv.Key)); ok && of == cluster && (expiring || kv.Lease == 0) {
			out[string(kv.Key)] = string(kv.Value)
		}
	}
	return out
}

// delete deletes a workspace, and waits until nothing of it is left.
func (r *restorable) delete(t *testing.T, workspace *tenancyv1alpha1.Workspace) {
	t.Helper()
	parent := workspace.Annotations["kcp.io/cluster"]
	if err := r.masters.Delete(shardtesting.In(t.Context(), parent), workspace.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	shardtesting.EventuallyWithin(t, longWait, "workspace "+workspace.Name+" is gone", func(ctx context.Context) error {
		err := r.masters.Get(shardtesting.In(ctx, parent), client.ObjectKeyFromObject(workspace), &tenancyv1alpha1.Workspace{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("reading it: %w", err)
		}
		return nil
	})
	r.expectNothing(t, workspace.Spec.Cluster)
}

// expectNothing waits until etcd has nothing of a logical cluster, nor of a restore.
func (r *restorable) expectNothing(t *testing.T, cluster string) {
	t.Helper()
	shardtesting.EventuallyWithin(t, longWait, "nothing is left of "+cluster, func(ctx context.Context) error {
		if left := r.stored(t, cluster); len(left) > 0 {
			return fmt.Errorf("there is %q", slices.Sorted(maps.Keys(left)))
		}
		return r.hasRecords(ctx)
	})
}

// hasRecords returns an error if there are keys of a restore.
func (r *restorable) hasRecords(ctx context.Context) error {
	for _, prefix := range []string{"/registry/~restoring/", "/registry/~incoming/"} {
		found, err := r.etcdClient.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err != nil {
			return err
		}
		if len(found.Kvs) > 0 {
			return fmt.Errorf("there are %d keys below %s, the first is %s", len(found.Kvs), prefix, found.Kvs[0].Key)
		}
	}
	return nil
}

func (r *restorable) testTeam(t *testing.T) {
	cluster := r.team.Spec.Cluster
	list := &corev1.ConfigMapList{}
	if err := r.masters.List(shardtesting.In(t.Context(), cluster), list); err != nil {
		t.Fatal(err)
	}
	r.delete(t, r.team)
	output, err := r.restoreWorkspace(t, "root:acme:team")
	if err != nil || !strings.Contains(output, "restored workspace root:acme:team as of ") || !strings.Contains(output, fmt.Sprintf("brought %d of %d objects", len(r.saved)+1, len(r.saved)+1)) {
		t.Fatalf("%v: %s", err, output)
	}
	shardtesting.Eventually(t, "no keys of the restore are left", r.hasRecords)
	restored := r.shard.WaitReady(t, r.parent, "team")
	if restored.UID != r.team.UID || restored.Spec.Cluster != cluster || !restored.CreationTimestamp.Equal(&r.team.CreationTimestamp) {
		t.Errorf("the Workspace is %+v, want %+v", restored, r.team)
	}
	shardtesting.Eventually(t, "the content is that of the backup", func(context.Context) error { return r.compareTeam(t) })
	r.testOwners(t)

	t.Run("Requests", func(t *testing.T) { r.testRequests(t, list.ResourceVersion) })
	output, err = r.restoreWorkspace(t, "root:acme:team")
	expectError(t, output, err, "workspace root:acme:team exists")
	r.delete(t, r.team) // it can be deleted as before
}

// testOwners waits until the garbage collector has processed what came back, and finds the objects whose owners it has seen deleted before.
func (r *restorable) testOwners(t *testing.T) {
	t.Helper()
	in := shardtesting.In(t.Context(), r.team.Spec.Cluster)
	links := make([]*corev1.ConfigMap, chained)
	for n := range links {
		links[n] = newConfigMap(fmt.Sprintf("chain-%d", n))
	}
	for n, link := range links[1:] { // another reference has the object collected again: one that is absent is removed
		absent := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "absent", UID: "absent"}
		shardtesting.Eventually(t, "the reference is added to "+link.Name, func(ctx context.Context) error {
			if err := r.masters.Get(shardtesting.In(ctx, r.team.Spec.Cluster), client.ObjectKeyFromObject(link), link); err != nil {
				return err
			}
			link.OwnerReferences = append(link.OwnerReferences, absent)
			return r.masters.Update(shardtesting.In(ctx, r.team.Spec.Cluster), link)
		})
		shardtesting.Eventually(t, link.Name+" has its owner only", func(ctx context.Context) error {
			if err := r.masters.Get(shardtesting.In(ctx, r.team.Spec.Cluster), client.ObjectKeyFromObject(link), link); err != nil {
				return err
			}
			if len(link.OwnerReferences) != 1 || link.OwnerReferences[0].Name != links[n].Name {
				return fmt.Errorf("its owners are %+v", link.OwnerReferences)
			}
			return nil
		})
	}
	if err := r.masters.Get(in, client.ObjectKeyFromObject(links[0]), links[0]); err != nil {
		t.Fatal(err)
	}
	for n, link := range links[1:] {
		if link.OwnerReferences[0].UID != links[n].UID {
			t.Errorf("the owner of %s is %+v, want %s", link.Name, link.OwnerReferences[0], links[n].UID)
		}
	}
}

// compareTeam compares the keys of team with those in the backup. The LogicalCluster has another epoch.
func (r *restorable) compareTeam(t *testing.T) error {
	t.Helper()
	after := r.lasting(t, r.team.Spec.Cluster)
	if len(after) != len(r.saved) {
		return fmt.Errorf("there are the keys %q, want %q", slices.Sorted(maps.Keys(after)), slices.Sorted(maps.Keys(r.saved)))
	}
	for key, value := range r.saved {
		if got := after[key]; got != value && !strings.Contains(key, "/logicalclusters/") {
			return fmt.Errorf("%s has the value %q, want %q", key, got, value)
		}
	}
	return nil
}

// testRequests sends requests to the restored workspace. A version from before its deletion has expired.
func (r *restorable) testRequests(t *testing.T, old string) {
	if _, err := r.widgets(t).Get(t.Context(), "bound", metav1.GetOptions{}); err != nil {
		t.Errorf("the object of a bound resource: %v", err)
	}
	if _, err := r.widgets(t).Create(t.Context(), newWidget("new"), metav1.CreateOptions{}); err != nil {
		t.Errorf("creating an object of a bound resource: %v", err)
	}
	bearer := shardtesting.At(rest.AnonymousClientConfig(r.shard.Masters(t)), r.team.Spec.Cluster)
	bearer.BearerToken = r.token
	configMaps := r.shard.Kubernetes(t, bearer).CoreV1().ConfigMaps(metav1.NamespaceDefault)
	shardtesting.Eventually(t, "the token of the service account is valid", func(ctx context.Context) error {
		_, err := configMaps.Get(ctx, "config-0", metav1.GetOptions{})
		return err
	})
	list, err := configMaps.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) < manyConfigMaps {
		t.Fatalf("%v: listed %d config maps", err, len(list.Items))
	}
	watching, err := configMaps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion, TimeoutSeconds: new(int64(60))})
	if err != nil {
		t.Fatal(err)
	}
	defer watching.Stop()
	if _, err := configMaps.Create(t.Context(), newConfigMap("later"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	delivered := false
	for event := range watching.ResultChan() { // until the server ends it
		if later, ok := event.Object.(*corev1.ConfigMap); ok && event.Type == watch.Added && later.Name == "later" {
			delivered = true
			break
		}
	}
	if !delivered {
		t.Error("the watch does not deliver what is created")
	}
	response, body := shardtesting.Send(t, bearer, http.MethodGet, "/api/v1/namespaces/default/configmaps?watch=true&timeoutSeconds=5&resourceVersion="+old, "")
	if response.StatusCode != http.StatusGone && !strings.Contains(body, `"code":410`) {
		t.Errorf("a watch from before the deletion: %d, %s", response.StatusCode, body)
	}
}

// testExports replaces the export of a binding by one with another identity.
func (r *restorable) testExports(t *testing.T) {
	r.delete(t, r.lonely)
	in := shardtesting.In(t.Context(), r.gone)
	export := &apisv1alpha2.APIExport{}
	if err := r.masters.Get(in, client.ObjectKey{Name: "widgets"}, export); err != nil {
		t.Fatal(err)
	}
	if err := r.masters.Delete(in, export); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the export is gone", func(ctx context.Context) error {
		if err := r.masters.Get(shardtesting.In(ctx, r.gone), client.ObjectKey{Name: "widgets"}, export); !apierrors.IsNotFound(err) {
			return fmt.Errorf("reading it: %w", err)
		}
		return nil
	})
	expect := func(want string) {
		t.Helper()
		r.expectRefused(t, "root:acme:lonely", r.lonely.Spec.Cluster, want)
	}
	expect("binding widgets needs APIExport widgets of logical cluster " + r.gone + ", which does not exist")
	again, secret := &apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Name: "widgets"}, Spec: export.Spec}, export.Spec.Identity.SecretRef
	again.Spec.Identity = nil
	if err := errors.Join(
		r.masters.Delete(in, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: secret.Name, Namespace: secret.Namespace}}), r.masters.Create(in, again),
	); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the export has another identity", func(ctx context.Context) error {
		if err := r.masters.Get(shardtesting.In(ctx, r.gone), client.ObjectKey{Name: "widgets"}, again); err != nil {
			return err
		}
		if hash := again.Status.IdentityHash; hash == "" || hash == export.Status.IdentityHash {
			return fmt.Errorf("its identity is %q", hash)
		}
		return nil
	})
	expect("binding widgets needs identity " + export.Status.IdentityHash)
}

// testVersions replaces the schema of an export by one without the version in which an object is stored.
func (r *restorable) testVersions(t *testing.T) {
	r.delete(t, r.stale)
	next := shardtesting.NewSchema("next", gadgets, "Gadget")
	next.Spec.Versions[0].Name = "v2"
	if err := r.masters.Create(shardtesting.In(t.Context(), r.provider), next); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the export has another schema", func(ctx context.Context) error {
		in, export := shardtesting.In(ctx, r.provider), &apisv1alpha2.APIExport{}
		if err := r.masters.Get(in, client.ObjectKey{Name: "gadgets"}, export); err != nil {
			return err
		}
		export.Spec.Resources[0].Schema = next.Name
		return r.masters.Update(in, export)
	})
	r.expectRefused(t, "root:acme:stale", r.stale.Spec.Cluster, "has objects of gadgets.example.com in version v1, which APIExport gadgets of logical cluster "+r.provider+" no longer has")
}

// expectRefused restores a workspace that cannot be, of which nothing is left. The shard reads the state at that time, not what it has cached.
func (r *restorable) expectRefused(t *testing.T, path, cluster, want string) {
	t.Helper()
	output, err := r.restoreWorkspace(t, path)
	expectError(t, output, err, want)
	r.expectNothing(t, cluster)
}

// request puts a request for a workspace that does not exist into etcd, as the program does.
func (r *restorable) request(t *testing.T, id, cluster string, keys int) {
	t.Helper()
	parent := &corev1alpha1.LogicalCluster{}
	if err := r.masters.Get(shardtesting.In(t.Context(), r.parent), client.ObjectKey{Name: corev1alpha1.LogicalClusterName}, parent); err != nil {
		t.Fatal(err)
	}
	put(t, r.etcdClient, workspacerestore.At("/registry").Request(), fmt.Sprintf(`{"id":%q,"path":"root:acme:invented","logicalCluster":%q,"parent":%q,"parentUID":%q,"workspaceKey":%q,"keys":%d,"complete":true}`,
		id, cluster, r.parent, parent.UID, r.workspaceKeys+"invented", keys))
}

func put(t *testing.T, etcd *clientv3.Client, key, value string) {
	t.Helper()
	if _, err := etcd.Put(t.Context(), key, value); err != nil {
		t.Fatal(err)
	}
}

// testDamaged brings content that no shard can serve.
func (r *restorable) testDamaged(t *testing.T) {
	keys := workspacerestore.At("/registry")
	put(t, r.etcdClient, keys.Object("/core/configmaps", "default/one"), "damaged")
	r.request(t, "restore-damaged", "damaged", 1)
	defer func() {
		if _, err := r.etcdClient.Delete(t.Context(), "/registry/~restoring/", clientv3.WithPrefix()); err != nil {
			t.Error(err)
		}
		r.expectNothing(t, "damaged")
	}()
	shardtesting.EventuallyWithin(t, longWait, "the shard refuses", func(ctx context.Context) error {
		found, err := r.etcdClient.Get(ctx, keys.Report())
		if err != nil {
			return err
		}
		if len(found.Kvs) == 0 || !strings.Contains(string(found.Kvs[0].Value), "an object of /core/configmaps that this shard cannot serve") {
			return fmt.Errorf("the report is %q", found.Kvs)
		}
		return nil
	})
	if left := r.stored(t, "damaged"); len(left) > 0 {
		t.Errorf("there is %q", left)
	}
}

// testLeftBehind has the keys of a copy that was begun by a leader that was killed, for a program that was killed, too.
func (r *restorable) testLeftBehind(t *testing.T) {
	const id, cluster = "restore-killed", "leftbehind"
	put(t, r.etcdClient, "/registry/core.kcp.io/logicalclusters/customresources/"+cluster+"/cluster",
		`{"apiVersion":"core.kcp.io/v1alpha1","kind":"LogicalCluster","metadata":{"name":"cluster","annotations":{"kcp.io/cluster":"`+cluster+`","internal.core.kcp.io/arriving":"`+id+`"}}}`)
	put(t, r.etcdClient, "/registry/~incoming/"+cluster+"/"+id+"/core/configmaps/~/default/one", `{"resource":"/core/configmaps","name":"default/one","modRevision":1}`)
	put(t, r.etcdClient, "/registry/core/configmaps/"+cluster+"/default/one", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"one","namespace":"default"}}`)
	put(t, r.etcdClient, workspacerestore.At("/registry").Claim(cluster), id)
	r.expectNothing(t, cluster)
}
