//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
)

// workspaces are root:e2e and its two children, which hold objects of equal names.
type workspaces struct {
	org, a, b workspace
}

// workspace is one workspace as the administrator sees it through the front proxy.
type workspace struct {
	path    string // root:e2e:a
	cluster string // name of the logical cluster
	config  *rest.Config
	client  client.WithWatch
}

const (
	sharedNamespace = "team"
	objects         = 5 // config maps object-0 ... object-4 in each of a and b
)

// testWorkspaceCreation creates root:e2e and two workspaces below it, and fills these with objects of equal names.
func (in *installation) testWorkspaceCreation(t *testing.T) {
	in.data.org = in.createWorkspace(t, "root", "e2e")
	in.data.a = in.createWorkspace(t, in.data.org.path, "a")
	in.data.b = in.createWorkspace(t, in.data.org.path, "b")
	for _, w := range []workspace{in.data.a, in.data.b} {
		w.createObjects(t)
	}
	// The name of the logical cluster reaches the same objects as the path.
	byName := newClient(t, workspaceConfig(in.admin, in.data.a.cluster))
	found := &corev1.ConfigMap{}
	if err := byName.Get(t.Context(), client.ObjectKey{Namespace: sharedNamespace, Name: "object-0"}, found); err != nil {
		t.Fatalf("get by the logical cluster's name: %v", err)
	}
	if found.Data["workspace"] != in.data.a.path {
		t.Errorf("the name of %s returns the objects of %s", in.data.a.path, found.Data["workspace"])
	}
}

// createWorkspace creates a workspace of the universal type and waits until the front proxy routes to it.
func (in *installation) createWorkspace(t *testing.T, parent, name string) workspace {
	t.Helper()
	return in.createWorkspaceOn(t, parent, name, "")
}

// createWorkspaceOn creates a workspace on a certain shard, or on any if shard is "".
func (in *installation) createWorkspaceOn(t *testing.T, parent, name, shard string) workspace {
	t.Helper()
	c := newClient(t, workspaceConfig(in.admin, parent))
	ws := &tenancyv1alpha1.Workspace{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       tenancyv1alpha1.WorkspaceSpec{Type: &tenancyv1alpha1.WorkspaceTypeReference{Name: "universal", Path: "root"}},
	}
	if shard != "" {
		ws.Spec.Location = &tenancyv1alpha1.WorkspaceLocation{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"name": shard}}}
	}
	if err := c.Create(t.Context(), ws); err != nil {
		t.Fatalf("create workspace %s:%s: %v", parent, name, err)
	}
	// Usually a second. After a shard was killed its controllers first wait for the lease of the dead process to
	// expire.
	eventually(t, 90*time.Second, "readiness of workspace "+parent+":"+name, func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(ws), ws); err != nil {
			return err
		}
		if ws.Status.Phase != corev1alpha1.LogicalClusterPhaseReady || ws.Spec.URL == "" {
			return fmt.Errorf("phase %s, URL %q, conditions %v", ws.Status.Phase, ws.Spec.URL, ws.Status.Conditions)
		}
		return nil
	})
	out := workspace{path: parent + ":" + name, cluster: ws.Spec.Cluster}
	out.config = workspaceConfig(in.admin, out.path)
	if !strings.HasPrefix(ws.Spec.URL, in.admin.Host) {
		t.Errorf("workspace %s has the URL %s, which is not below %s", out.path, ws.Spec.URL, in.admin.Host)
	}
	eventually(t, 10*time.Second, "the front proxy's route to "+out.path, func(ctx context.Context) error {
		return get(ctx, in.admin, "/clusters/"+out.path+"/api")
	})
	out.client = newClient(t, out.config)
	return out
}

// createObjects creates the shared namespace and the config maps in it. The data of each names its workspace; odd ones
// have a label.
func (w workspace) createObjects(t *testing.T) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: sharedNamespace}}
	if err := w.client.Create(t.Context(), ns); err != nil {
		t.Fatalf("create namespace %s in %s: %v", sharedNamespace, w.path, err)
	}
	for i := range objects {
		if err := w.client.Create(t.Context(), w.object(fmt.Sprintf("object-%d", i))); err != nil {
			t.Fatalf("create a config map in %s: %v", w.path, err)
		}
	}
}

func (w workspace) object(name string) *corev1.ConfigMap {
	labels := map[string]string{"parity": "even"}
	if last := name[len(name)-1]; (last-'0')%2 == 1 {
		labels["parity"] = "odd"
	}
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: sharedNamespace, Name: name, Labels: labels},
		Data:       map[string]string{"workspace": w.path},
	}
}

// expectObjects fails when a list has other objects than the named ones of this workspace.
func (w workspace) expectObjects(t *testing.T, operation string, items []corev1.ConfigMap, names ...string) {
	t.Helper()
	var have []string
	for _, item := range items {
		if item.Data["workspace"] != w.path {
			t.Errorf("%s in %s returns %s/%s of %q", operation, w.path, item.Namespace, item.Name, item.Data["workspace"])
		}
		have = append(have, item.Name)
	}
	if strings.Join(have, " ") != strings.Join(names, " ") {
		t.Errorf("%s in %s returns %v, want %v", operation, w.path, have, names)
	}
}

func allObjects() []string {
	var out []string
	for i := range objects {
		out = append(out, fmt.Sprintf("object-%d", i))
	}
	return out
}

func (in *installation) testWorkspaceIsolation(t *testing.T) {
	for _, w := range []workspace{in.data.a, in.data.b} {
		t.Run("get, list and selectors in "+w.path, w.testReads)
	}
	t.Run("watch", in.testWatchIsolation)
	t.Run("paging", in.testPagingIsolation)
	t.Run("a write in one workspace does not change the other", in.testWriteIsolation)
	t.Run("the cluster annotation cannot be set by a client", in.testClusterAnnotation)
	t.Run("wildcard requests are Forbidden", in.testWildcard)
	t.Run("unknown workspaces are Forbidden", in.testUnknownWorkspace)
}

func (w workspace) testReads(t *testing.T) {
	one := &corev1.ConfigMap{}
	if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: sharedNamespace, Name: "object-0"}, one); err != nil {
		t.Fatal(err)
	}
	w.expectObjects(t, "get", []corev1.ConfigMap{*one}, "object-0")

	for _, tc := range []struct {
		how     string
		options []client.ListOption
		want    []string
	}{
		{"list", []client.ListOption{client.InNamespace(sharedNamespace)}, allObjects()},
		{"list from the cache", []client.ListOption{client.InNamespace(sharedNamespace), &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}}}, allObjects()},
		{"list over all namespaces", nil, allObjects()},
		{"a label selector", []client.ListOption{client.MatchingLabels{"parity": "odd"}}, []string{"object-1", "object-3"}},
		{"a field selector", []client.ListOption{client.MatchingFields{"metadata.name": "object-2"}}, []string{"object-2"}},
	} {
		list := &corev1.ConfigMapList{}
		if err := w.client.List(t.Context(), list, tc.options...); err != nil {
			t.Errorf("%s: %v", tc.how, err)
			continue
		}
		items := list.Items[:0]
		for _, item := range list.Items {
			if item.Name != "kube-root-ca.crt" { // every namespace has one
				items = append(items, item)
			}
		}
		w.expectObjects(t, tc.how, items, tc.want...)
	}
}

// testWatchIsolation writes to b before it writes to a. The first event of the watch in a must be the second write.
func (in *installation) testWatchIsolation(t *testing.T) {
	a, b := in.data.a, in.data.b
	list := &corev1.ConfigMapList{}
	if err := a.client.List(t.Context(), list, client.InNamespace(sharedNamespace)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for _, scope := range []client.ListOptions{{Namespace: sharedNamespace}, {}} {
		scope.Raw = &metav1.ListOptions{ResourceVersion: list.ResourceVersion}
		watcher, err := a.client.Watch(ctx, &corev1.ConfigMapList{}, &scope)
		if err != nil {
			t.Fatal(err)
		}
		defer watcher.Stop()
		for _, w := range []workspace{b, a} {
			if err := w.client.Create(ctx, w.object("watched-0")); err != nil {
				t.Fatal(err)
			}
			if err := w.client.Delete(ctx, w.object("watched-0")); err != nil {
				t.Fatal(err)
			}
		}
		for _, want := range []string{"ADDED", "DELETED"} {
			event, ok := <-watcher.ResultChan()
			if !ok {
				t.Fatalf("the watch ended before event %s: %v", want, ctx.Err())
			}
			object, ok := event.Object.(*corev1.ConfigMap)
			if !ok || string(event.Type) != want || object.Name != "watched-0" || object.Data["workspace"] != a.path {
				t.Fatalf("the watch in %s (namespace %q) returns %s %+v, want %s of watched-0 of %s", a.path, scope.Namespace, event.Type, event.Object, want, a.path)
			}
		}
		// The next watch starts after the last event of this one.
		if err := a.client.List(ctx, list, client.InNamespace(sharedNamespace)); err != nil {
			t.Fatal(err)
		}
	}
}

// testPagingIsolation reads a in pages, and sends the continue token of a's first page to b.
func (in *installation) testPagingIsolation(t *testing.T) {
	a, b := in.data.a, in.data.b
	var all []corev1.ConfigMap
	var token, first string
	for page := 0; page == 0 || token != ""; page++ {
		if page > objects {
			t.Fatalf("paging does not end")
		}
		list := &corev1.ConfigMapList{}
		if err := a.client.List(t.Context(), list, client.InNamespace(sharedNamespace), client.Limit(2), client.Continue(token)); err != nil {
			t.Fatalf("page %d: %v", page, err)
		}
		if len(list.Items) > 2 {
			t.Errorf("page %d has %d objects, the limit is 2", page, len(list.Items))
		}
		for _, item := range list.Items {
			if item.Name != "kube-root-ca.crt" {
				all = append(all, item)
			}
		}
		if token = list.Continue; page == 0 {
			first = token
		}
	}
	a.expectObjects(t, "paging", all, allObjects()...)
	if first == "" {
		t.Fatal("the first page has no continue token")
	}

	list := &corev1.ConfigMapList{}
	err := b.client.List(t.Context(), list, client.InNamespace(sharedNamespace), client.Limit(2), client.Continue(first))
	if err != nil {
		t.Logf("a token of %s in %s: %v", a.path, b.path, err)
		return
	}
	for _, item := range list.Items {
		if item.Name != "kube-root-ca.crt" && item.Data["workspace"] != b.path {
			t.Errorf("a token of %s in %s returns %s of %s", a.path, b.path, item.Name, item.Data["workspace"])
		}
	}
}

func (in *installation) testWriteIsolation(t *testing.T) {
	a, b := in.data.a, in.data.b
	before := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: sharedNamespace, Name: "object-0"}
	if err := b.client.Get(t.Context(), key, before); err != nil {
		t.Fatal(err)
	}
	changed := a.object("object-0")
	if err := a.client.Patch(t.Context(), changed, client.RawPatch("application/merge-patch+json", []byte(`{"data":{"changed":"yes"}}`))); err != nil {
		t.Fatal(err)
	}
	extra := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "only-here"}}
	if err := a.client.Create(t.Context(), extra); err != nil {
		t.Fatal(err)
	}
	if err := b.client.Get(t.Context(), client.ObjectKeyFromObject(extra), extra); !apierrors.IsNotFound(err) {
		t.Errorf("a namespace of %s is seen in %s: %v", a.path, b.path, err)
	}
	after := &corev1.ConfigMap{}
	if err := b.client.Get(t.Context(), key, after); err != nil {
		t.Fatal(err)
	}
	if after.ResourceVersion != before.ResourceVersion || after.Data["changed"] != "" {
		t.Errorf("a change in %s changes %s: %v", a.path, b.path, after)
	}
}

func (in *installation) testClusterAnnotation(t *testing.T) {
	a, b := in.data.a, in.data.b
	forged := b.object("forged-0")
	forged.Annotations = map[string]string{"kcp.io/cluster": a.cluster}
	if err := b.client.Create(t.Context(), forged); err != nil {
		t.Logf("refused: %v", err)
		return
	}
	defer func() {
		if err := b.client.Delete(context.WithoutCancel(t.Context()), b.object("forged-0")); err != nil {
			t.Errorf("delete: %v", err)
		}
	}()
	if got := forged.Annotations["kcp.io/cluster"]; got != b.cluster {
		t.Errorf("an object created in %s has cluster annotation %q", b.path, got)
	}
	if err := a.client.Get(t.Context(), client.ObjectKeyFromObject(forged), &corev1.ConfigMap{}); !apierrors.IsNotFound(err) {
		t.Errorf("an object created in %s with a forged annotation is seen in %s: %v", b.path, a.path, err)
	}
}

func (in *installation) testWildcard(t *testing.T) {
	for _, path := range []string{"/clusters/*/api/v1/configmaps", "/clusters/*/apis/tenancy.kcp.io/v1alpha1/workspaces", "/clusters/*/api"} {
		if err := get(t.Context(), in.admin, path); !apierrors.IsForbidden(err) {
			t.Errorf("GET %s as the administrator: want 403, got %v", path, err)
		}
	}
}

func (in *installation) testUnknownWorkspace(t *testing.T) {
	for _, path := range []string{"root:e2e:missing", "missing", "root:missing:a", "root:e2e:a:..:b"} {
		if err := get(t.Context(), in.admin, "/clusters/"+path+"/api/v1/namespaces"); !apierrors.IsForbidden(err) {
			t.Errorf("GET in %s: want 403, got %v", path, err)
		}
	}
}
