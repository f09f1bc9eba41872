package plugins

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/installation"
)

func testWorkspaces(t *testing.T, i *installation.Installation) {
	u := newUser(t, i, i.Admin(t, "root"))
	u.expect(u.kcp("ws ."), commandOutput{out: "Current workspace is 'root'.\n"})
	u.expect(u.create("moves --type root:organization --enter"), commandOutput{out: "" +
		"Workspace \"moves\" (type root:organization) created. Waiting for it to be ready...\n" +
		"Workspace \"moves\" (type root:organization) is ready to use.\n" +
		"Current workspace is 'root:moves' (type root:organization).\n"})
	for _, name := range []string{"a", "b"} {
		u.expect(u.create(name), commandOutput{out: "" +
			"Workspace \"" + name + "\" (type root:universal) created. Waiting for it to be ready...\n" +
			"Workspace \"" + name + "\" (type root:universal) is ready to use.\n"})
	}
	u.expect(u.create("a --ignore-existing --type root:universal"), commandOutput{out: "Workspace \"a\" (type root:universal) already exists.\n"})
	u.expect(u.create("a --ignore-existing --type root:team"), commandOutput{
		err: `workspace "a" cannot be created with type root:team, it already exists with different type root:universal`})
	u.expect(u.kcp("ws tree"), commandOutput{out: ".\n└── moves\n    ├── a\n    └── b\n"})
	u.expect(u.kcp("ws tree --full --wide"), commandOutput{out: ".\n" +
		"└── root:moves        ws=-             lc=Ready\n" +
		"    ├── root:moves:a  ws=Ready         lc=Ready\n" +
		"    └── root:moves:b  ws=Ready         lc=Ready\n"})
	u.expect(u.kcp("ws tree -w a"), commandOutput{out: ".\n└── a\n"})
	u.expect(u.kcp("workspace a"), commandOutput{out: "Current workspace is 'root:moves:a' (type root:universal).\n"})
	u.expect(u.kcp("ws use ../b"), commandOutput{out: "Current workspace is 'root:moves:b' (type root:universal).\n"})
	u.expect(u.kcp("ws -"), commandOutput{out: "Current workspace is 'root:moves:a'.\n"})
	u.expect(u.kcp("ws cd :"), commandOutput{out: "Current workspace is 'root'.\n"})
	u.expect(u.kcp("ws missing"), commandOutput{err: `workspace "root:missing" not found`})
	u.expect(u.kcp("ws :root:moves:a"), commandOutput{out: "Current workspace is 'root:moves:a' (type root:universal).\n"})
	u.expect(u.kcp("ws create-context mine"), commandOutput{out: "Created context \"mine\" and switched to it.\n"})
	u.expect(u.kcp("ws create-context mine"), commandOutput{err: `context "mine" already exists in kubeconfig, use --overwrite to update it`})
	u.expect(u.kcp("ws current --short"), commandOutput{out: "root:moves:a\n"})

	config, err := clientcmd.LoadFromFile(u.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for context, want := range map[string]string{
		"workspace": "SERVER/clusters/root", "workspace.kcp.io/current": "SERVER/clusters/root:moves:a",
		"workspace.kcp.io/previous": "SERVER/clusters/root", "mine": "SERVER/clusters/root:moves:a",
	} {
		if got := u.maskURL(config.Clusters[config.Contexts[context].Cluster].Server); got != want {
			t.Errorf("context %s has server %s, want %s", context, got, want)
		}
	}

	unrelatedUser := newUser(t, i, i.User(t, "root:moves:a", "mallory"))
	unrelatedUser.expect(unrelatedUser.kcp("ws :root:moves:b"), commandOutput{err: `access to workspace "root:moves:b" denied`})
	homeOutput := unrelatedUser.kcp("ws ~")
	if homeOutput.err != "" || !strings.HasPrefix(homeOutput.out, "Current workspace is '") {
		t.Errorf("ws ~: %+v", homeOutput)
	}
}

// testAdminWorkspace enters the admin workspace through the front proxy, closes a shard of another server there, and opens it.
func testAdminWorkspace(t *testing.T, i *installation.Installation) {
	u := newUser(t, i, i.Admin(t, "root"))
	u.expect(u.kcp("ws :admin"), commandOutput{out: "Current workspace is ':admin'.\n"})
	u.expect(u.kcp("ws ."), commandOutput{out: "Current workspace is ':admin'.\n"})
	u.expect(u.kcp("ws current --short"), commandOutput{out: ":admin\n"})
	u.expect(u.kcp("ws child"), commandOutput{err: "the admin workspace has no workspaces: use a path that starts with ':', such as ':root'"})

	kubeconfig, err := clientcmd.LoadFromFile(u.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.NewDefaultClientConfig(*kubeconfig, nil).ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	shards, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	resource := shards.Resource(corev1alpha1.SchemeGroupVersion.WithResource("shards"))
	list, err := resource.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 3 {
		t.Fatalf("got %v, %v", list, err)
	}
	closed := list.Items[0].GetName()
	for _, step := range []struct{ annotation, status string }{{`"true"`, "False"}, {"null", "True"}} {
		patch := `{"metadata":{"annotations":{"` + corev1alpha1.UnschedulableAnnotationKey + `":` + step.annotation + `}}}`
		if _, err := resource.Patch(t.Context(), closed, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		shardtesting.Eventually(t, "the condition Schedulable of "+closed+" is "+step.status, func(ctx context.Context) error {
			object, err := resource.Get(ctx, closed, metav1.GetOptions{})
			if err != nil {
				return err
			}
			shard := &corev1alpha1.Shard{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, shard); err != nil {
				return err
			}
			if condition := conditionsv1alpha1.Get(shard, corev1alpha1.ShardSchedulable); condition == nil || string(condition.Status) != step.status {
				return fmt.Errorf("got %+v", condition)
			}
			return nil
		})
	}
	u.expect(u.kcp("ws -"), commandOutput{out: "Current workspace is 'root'.\n"})
	u.expect(u.kcp("ws -"), commandOutput{out: "Current workspace is ':admin'.\n"})
	u.expect(u.kcp("ws :root"), commandOutput{out: "Current workspace is 'root' (type root).\n"})

	stranger := newUser(t, i, i.User(t, "root", "mallory"))
	stranger.expect(stranger.kcp("ws :admin"), commandOutput{
		err: "access to the admin workspace denied: it is for members of the group system:kcp:admin, and the server has to be one that serves it"})
}

func testNoServer(t *testing.T, i *installation.Installation) {
	config := i.Admin(t, "root")
	config.Host = "https://127.0.0.1:1/clusters/root"
	u := newUser(t, i, config)
	got := u.kcp("quickstart")
	for _, want := range []string{"https://127.0.0.1:1/clusters/root", `Start one with "kcp start"`} {
		if !strings.Contains(got.err, want) {
			t.Errorf("quickstart without a server returns %q without %q", got.err, want)
		}
	}
	config.Host = "https://127.0.0.1:1"
	u = newUser(t, i, config)
	u.expect(u.kcp("bind apiexport root:a:b"), commandOutput{err: `current URL "https://127.0.0.1:1" does not point to a workspace`})
}
