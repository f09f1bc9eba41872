package tenancy_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/options"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// TestMounts mounts an object that every workspace has: its own LogicalCluster, whose phase and URL are those of a
// mount.
func TestMounts(t *testing.T) {
	target := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = fmt.Fprintf(w, "backend %s %q", req.URL.Path, req.Header.Get("Authorization"))
	}))
	defer target.Close()
	shard := shardtesting.Start(t, func(o *options.Options) { o.FeatureGates = []string{"WorkspaceMounts=true"} })
	masters := shard.Client(t, shard.Masters(t))
	parent := shard.NewWorkspace(t, "root", "parent").Spec.Cluster
	in := shardtesting.In(t.Context(), parent)

	create := func(name, kind, object string) *tenancyv1alpha1.Workspace {
		t.Helper()
		workspace := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: tenancyv1alpha1.WorkspaceSpec{
			Mount: &tenancyv1alpha1.Mount{Reference: tenancyv1alpha1.ObjectReference{APIVersion: "core.kcp.io/v1alpha1", Kind: kind, Name: object}},
		}}
		if err := shard.Client(t, shard.Admin(t)).Create(in, workspace); err != nil {
			t.Fatal(err)
		}
		return workspace
	}
	waitForPhase := func(name string, phase corev1alpha1.LogicalClusterPhaseType, reason string) *tenancyv1alpha1.Workspace {
		t.Helper()
		workspace := &tenancyv1alpha1.Workspace{}
		shardtesting.Eventually(t, name+" to be "+string(phase), func(context.Context) error {
			get(t, masters, in, workspace, "", name)
			for _, condition := range workspace.Status.Conditions {
				if condition.Type == tenancyv1alpha1.WorkspaceMountReady && condition.Reason == reason && workspace.Status.Phase == phase {
					return nil
				}
			}
			return fmt.Errorf("status %+v", workspace.Status)
		})
		return workspace
	}

	create("nothing", "LogicalCluster", "nosuch")
	create("unknown", "NoSuchKind", "cluster")
	waitForPhase("nothing", "Unavailable", tenancyv1alpha1.ReasonMountObjectNotFound)
	waitForPhase("unknown", "Unavailable", tenancyv1alpha1.ReasonMountObjectNotFound)
	if response, body := shardtesting.Send(t, shard.Admin(t), http.MethodGet, "/clusters/root:parent:nothing/api", ""); response.StatusCode != http.StatusServiceUnavailable || body != "Not available.\n" {
		t.Errorf("an unavailable mount returned %d %q", response.StatusCode, body)
	}

	create("itself", "LogicalCluster", "cluster")
	mounted := waitForPhase("itself", "Ready", "")
	if mounted.Spec.Cluster != "" || mounted.Spec.Type != nil || mounted.Labels[corev1alpha1.PhaseLabelKey] != "Ready" || len(mounted.Finalizers) != 0 {
		t.Errorf("got %+v", mounted)
	}
	// Masters change the URL to that of the backend; the next poll restores it.
	waitForResponse := func(path, want string) {
		t.Helper()
		shardtesting.Eventually(t, "a response of the backend", func(context.Context) error {
			get(t, masters, in, mounted, "", "itself")
			mounted.Spec.URL = target.URL + "/base"
			if err := masters.Update(in, mounted); err != nil {
				return err
			}
			if response, body := shardtesting.Send(t, shard.Admin(t), http.MethodGet, "/clusters/root:parent:itself"+path, ""); response.StatusCode != http.StatusOK || body != want {
				return fmt.Errorf("%d %q", response.StatusCode, body)
			}
			return nil
		})
	}
	waitForResponse("/api/v1/namespaces", `backend /base/api/v1/namespaces ""`)
	waitForResponse("/services/initializingworkspaces/x/clusters/y/api", `backend /base/services/initializingworkspaces/x/clusters/y/api ""`)
	if response, _ := shardtesting.Send(t, shard.User(t), http.MethodGet, "/clusters/root:parent:itself/api", ""); response.StatusCode != http.StatusForbidden {
		t.Errorf("a user without access to the workspace of a mount got %d", response.StatusCode)
	}
	if response, _ := shardtesting.Send(t, shard.Admin(t), http.MethodGet, "/clusters/root:parent:itself:below/api", ""); response.StatusCode != http.StatusNotFound {
		t.Errorf("a path through a mount returned %d", response.StatusCode)
	}

	admin := shard.Client(t, shard.Admin(t))
	mounted.Spec.Mount = nil
	if err := admin.Update(in, mounted); err == nil {
		t.Error("spec.mount could be removed")
	}
	typed := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: "typed"}, Spec: tenancyv1alpha1.WorkspaceSpec{
		Type:  &tenancyv1alpha1.WorkspaceTypeReference{Name: "universal", Path: "root"},
		Mount: &tenancyv1alpha1.Mount{Reference: tenancyv1alpha1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: "x"}},
	}}
	if err := admin.Create(in, typed); !apierrors.IsForbidden(err) {
		t.Errorf("a mount with a type: %v", err)
	}
	if err := masters.Delete(in, mounted); err != nil {
		t.Fatal(err)
	}
	if err := masters.Get(in, client.ObjectKeyFromObject(mounted), mounted); !apierrors.IsNotFound(err) {
		t.Errorf("a deleted mount: %v", err)
	}
	get(t, masters, in, &corev1.Namespace{}, "", "default")
}
