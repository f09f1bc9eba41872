package shardserver_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// workspacePair is two workspaces that hold namespaces and config maps of the same names.
type workspacePair struct {
	shard              *shardtesting.Shard
	a, b               kubernetes.Interface
	clusterA, clusterB string
}

const objectsPerWorkspace = 7

func newWorkspacePair(t *testing.T) workspacePair {
	t.Helper()
	shard := shardtesting.Start(t)
	p := workspacePair{shard: shard}
	p.clusterA = shard.NewWorkspace(t, "root", "a").Spec.Cluster
	p.clusterB = shard.NewWorkspace(t, "root", "b").Spec.Cluster
	p.a = shard.Kubernetes(t, shardtesting.At(shard.Admin(t), "root:a"))
	p.b = shard.Kubernetes(t, shardtesting.At(shard.Admin(t), "root:b"))
	for side, client := range map[string]kubernetes.Interface{"a": p.a, "b": p.b} {
		_, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "same"}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range objectsPerWorkspace {
			_, err := client.CoreV1().ConfigMaps("same").Create(t.Context(), configMap(side, i), metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return p
}

func configMap(side string, i int) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("cm-%d", i), Namespace: "same", Labels: map[string]string{"of": "pair"},
			Annotations: map[string]string{"kcp.io/cluster": "root"}, // a false cluster that must have no effect
		},
		Data: map[string]string{"side": side},
	}
}

func TestWorkspaceIsolation(t *testing.T) {
	p := newWorkspacePair(t)
	ctx := t.Context()
	expectOnlyA := func(t *testing.T, items []corev1.ConfigMap, want int) {
		t.Helper()
		if len(items) != want {
			t.Errorf("got %d config maps, want %d", len(items), want)
		}
		for _, item := range items {
			if item.Data["side"] != "a" || item.Annotations["kcp.io/cluster"] != p.clusterA {
				t.Errorf("%s is of side %q, cluster %q", item.Name, item.Data["side"], item.Annotations["kcp.io/cluster"])
			}
		}
	}
	t.Run("get", func(t *testing.T) {
		got, err := p.a.CoreV1().ConfigMaps("same").Get(ctx, "cm-0", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		expectOnlyA(t, []corev1.ConfigMap{*got}, 1)
	})
	for name, options := range map[string]metav1.ListOptions{
		"list, consistent":      {},
		"list from the cache":   {ResourceVersion: "0"},
		"list by label":         {LabelSelector: "of=pair"},
		"list by absent label":  {LabelSelector: "!absent,of"},
		"list by namespace":     {FieldSelector: "metadata.namespace=same"},
		"list by exclusion":     {FieldSelector: "metadata.name!=kube-root-ca.crt"},
		"list not kube-root-ca": {FieldSelector: "metadata.name!=kube-root-ca.crt,metadata.namespace=same"},
	} {
		t.Run(name, func(t *testing.T) {
			options.LabelSelector = map[bool]string{true: "of=pair", false: options.LabelSelector}[options.LabelSelector == ""]
			list, err := p.a.CoreV1().ConfigMaps("").List(ctx, options)
			if err != nil {
				t.Fatal(err)
			}
			expectOnlyA(t, list.Items, objectsPerWorkspace)
		})
	}
	t.Run("pages, and a continue token used in the other workspace", func(t *testing.T) {
		var items []corev1.ConfigMap
		token := ""
		for {
			page, err := p.a.CoreV1().ConfigMaps("same").List(ctx, metav1.ListOptions{Limit: 2, Continue: token, LabelSelector: "of=pair"})
			if err != nil {
				t.Fatal(err)
			}
			items, token = append(items, page.Items...), page.Continue
			if token == "" {
				break
			}
			foreign, err := p.b.CoreV1().ConfigMaps("same").List(ctx, metav1.ListOptions{Limit: 100, Continue: token, LabelSelector: "of=pair"})
			if err != nil {
				t.Fatal(err)
			}
			for _, item := range foreign.Items {
				if item.Data["side"] != "b" {
					t.Errorf("the token of a, used in b, returned %s of side %q", item.Name, item.Data["side"])
				}
			}
		}
		expectOnlyA(t, items, objectsPerWorkspace)
	})
	t.Run("watch", func(t *testing.T) {
		watcher, err := p.a.CoreV1().ConfigMaps("same").Watch(ctx, metav1.ListOptions{LabelSelector: "of=pair"})
		if err != nil {
			t.Fatal(err)
		}
		defer watcher.Stop()
		for _, client := range []kubernetes.Interface{p.b, p.a} { // b first: its event would arrive before
			cm, err := client.CoreV1().ConfigMaps("same").Get(ctx, "cm-1", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			cm.Data["touched"] = "yes"
			if _, err := client.CoreV1().ConfigMaps("same").Update(ctx, cm, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		deadline := time.After(30 * time.Second)
		for {
			select {
			case event := <-watcher.ResultChan():
				cm, ok := event.Object.(*corev1.ConfigMap)
				if !ok {
					t.Fatalf("got %T", event.Object)
				}
				expectOnlyA(t, []corev1.ConfigMap{*cm}, 1)
				if cm.Data["touched"] == "yes" {
					return
				}
			case <-deadline:
				t.Fatal("the change in a never arrived")
			}
		}
	})
	t.Run("delete by collection", func(t *testing.T) {
		if err := p.a.CoreV1().ConfigMaps("same").DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "of=pair"}); err != nil {
			t.Fatal(err)
		}
		left, err := p.b.CoreV1().ConfigMaps("same").List(ctx, metav1.ListOptions{LabelSelector: "of=pair"})
		if err != nil || len(left.Items) != objectsPerWorkspace {
			t.Fatalf("b has %d config maps left, want %d: %v", len(left.Items), objectsPerWorkspace, err)
		}
	})
}

func TestWildcardRequests(t *testing.T) {
	p := newWorkspacePair(t)
	ctx := t.Context()
	all := p.shard.Kubernetes(t, shardtesting.At(p.shard.Masters(t), "*"))
	t.Run("system:masters lists all clusters, each object with its own", func(t *testing.T) {
		list, err := all.CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{LabelSelector: "of=pair"})
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]int{}
		for _, item := range list.Items {
			seen[item.Annotations["kcp.io/cluster"]]++
		}
		if seen[p.clusterA] != objectsPerWorkspace || seen[p.clusterB] != objectsPerWorkspace || len(seen) != 2 {
			t.Errorf("objects by cluster: %v", seen)
		}
	})
	t.Run("other users are forbidden", func(t *testing.T) {
		for who, config := range map[string]kubernetes.Interface{
			"system:kcp:admin": p.shard.Kubernetes(t, shardtesting.At(p.shard.Admin(t), "*")),
			"a plain user":     p.shard.Kubernetes(t, shardtesting.At(p.shard.User(t), "*")),
		} {
			if _, err := config.CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
				t.Errorf("list as %s: got %v, want Forbidden", who, err)
			}
		}
	})
	t.Run("only list and watch", func(t *testing.T) {
		_, err := all.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{})
		if !apierrors.IsMethodNotSupported(err) {
			t.Errorf("create: got %v, want MethodNotAllowed", err)
		}
		if _, err := all.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{}); !apierrors.IsMethodNotSupported(err) {
			t.Errorf("get: got %v, want MethodNotAllowed", err)
		}
		if err := all.CoreV1().ConfigMaps("").DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); !apierrors.IsMethodNotSupported(err) {
			t.Errorf("deletecollection: got %v, want MethodNotAllowed", err)
		}
		if _, err := all.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{}); !apierrors.IsBadRequest(err) {
			t.Errorf("list in a namespace of all clusters: got %v, want BadRequest", err)
		}
	})
}

func TestPathsAndNames(t *testing.T) {
	shard := sharedShard(t)
	outer := shard.NewWorkspace(t, "root", "outer")
	shard.NewWorkspace(t, outer.Spec.Cluster, "inner")
	for name, tc := range map[string]struct {
		path string
		want int
	}{
		"a name":                               {outer.Spec.Cluster, http.StatusOK},
		"a path":                               {"root:outer", http.StatusOK},
		"a nested path":                        {"root:outer:inner", http.StatusOK},
		"a path that starts at a cluster name": {outer.Spec.Cluster + ":inner", http.StatusOK},
		"an unknown path":                      {"root:absent", http.StatusNotFound},
		"an unknown path below a workspace":    {"root:outer:absent", http.StatusNotFound},
		"an unknown name":                      {"nosuchcluster", http.StatusForbidden},
		"a malformed name":                     {"UPPER", http.StatusBadRequest},
		"a malformed path":                     {"root::x", http.StatusBadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			if got := getStatus(t, shardtesting.At(shard.Admin(t), tc.path), "/api/v1/namespaces"); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
	if got := outer.Spec.URL; got == "" {
		t.Error("a Ready workspace has a URL")
	}
}
