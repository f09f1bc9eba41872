//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/test/hostcluster"
)

// TestRegions covers an installation whose shard alpha uses a cache downstream of that of the root shard, and a
// separate virtual workspace server; proxies read a shared index.
func TestRegions(t *testing.T) {
	t.Parallel()
	in := newInstallation(t, "kcp-e2e-regions", "development/regions")
	in.mutate = in.withSharedIndex
	if !t.Run("install", in.testInstall) {
		t.FailNow()
	}
	if !t.Run("global exports can be bound in the other region", in.testRegionBinding) {
		t.FailNow()
	}
	t.Run("reapplied manifests change no object", in.testReapply)
	t.Run("rollout of a front proxy", in.testFrontProxyRollout)
	t.Run("installation deletion removes all objects", in.testInstallationDeletion)
}

// withSharedIndex has shards write into the etcd of the root shard, under a prefix of its own, and proxies read from
// there.
func (in *installation) withSharedIndex(t *testing.T, u *unstructured.Unstructured) {
	switch u.GetKind() {
	case "RootShard":
		set(t, u, map[string]any{
			"endpoints": []any{"https://root-etcd-0.root-etcd." + in.namespace + ".svc.cluster.local:2379"},
			"tlsConfig": map[string]any{"secretRef": map[string]any{"name": "root-etcd-client"}},
		}, "spec", "sharedIndex")
	case "VirtualWorkspace":
		set(t, u, "alpha-views-virtual-workspace."+in.namespace+".svc.cluster.local", "spec", "external", "hostname")
	}
}

// testRegionBinding binds, in a workspace on alpha, an export of the root shard, which uses another cache.
func (in *installation) testRegionBinding(t *testing.T) {
	provider := in.createWorkspaceOn(t, "root", "provider", "root")
	eventually(t, 30*time.Second, "the reach annotation of the provider", func(ctx context.Context) error {
		cluster := &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Name: corev1alpha1.LogicalClusterName}}
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"cache.kcp.io/reach":"global"}}}`))
		return newClient(t, provider.config).Patch(ctx, cluster, patch)
	})
	provider.apply(t, hostcluster.WidgetAPI)
	consumer := in.createWorkspaceOn(t, "root", "consumer", "alpha")
	consumer.apply(t, `
apiVersion: apis.kcp.io/v1alpha2
kind: APIBinding
metadata: {name: widgets}
spec: {reference: {export: {path: "`+provider.path+`", name: widgets}}}`)
	eventually(t, 2*time.Minute, "a widget on alpha", func(ctx context.Context) error {
		widget := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"size": int64(3)}}}
		widget.SetAPIVersion("example.com/v1")
		widget.SetKind("Widget")
		widget.SetName("far")
		return client.IgnoreAlreadyExists(newClient(t, consumer.config).Create(ctx, widget))
	})
}

// testFrontProxyRollout changes the pods of the front proxy alone.
func (in *installation) testFrontProxyRollout(t *testing.T) {
	in.patch(t, "FrontProxy", "frontproxy", `{"spec":{"logging":{"level":3}}}`)
	eventually(t, 4*time.Minute, "completion of the rollout", func(ctx context.Context) error {
		if err := in.allReady(ctx); err != nil {
			return err
		}
		if err := in.hasCondition(ctx, "FrontProxy", "frontproxy", operatorv1alpha1.ConditionRolledOut, metav1.ConditionTrue, "Current"); err != nil {
			return err
		}
		front := &operatorv1alpha1.FrontProxy{}
		if err := in.host.Get(ctx, client.ObjectKey{Namespace: in.namespace, Name: "frontproxy"}, front); err != nil {
			return err
		}
		if front.Status.ObservedGeneration != front.Generation {
			return fmt.Errorf("generation %d of %d is observed", front.Status.ObservedGeneration, front.Generation)
		}
		return nil
	})
	if probes := in.remainingProbes(t); len(probes) > 0 {
		t.Errorf("probe workspaces remain after the rollout: %v", probes)
	}
}
