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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/test/hostcluster"
)

// TestShardedInstallation covers an installation of three shards with a cache server from its manifests to its
// deletion.
func TestShardedInstallation(t *testing.T) {
	t.Parallel()
	in := newInstallation(t, "kcp-e2e-sharded", "development/sharded")
	in.mutate = setTwoReplicas
	if !t.Run("install", in.testInstall) {
		t.FailNow()
	}
	t.Run("status conditions follow kstatus", in.testStatus)
	if !t.Run("consumers on other shards than the provider", in.testRemoteConsumers) {
		t.FailNow()
	}
	t.Run("endpoint slice has the URLs of all shards with consumers", in.testEndpointSlice)
	// They share nothing but the installation, and wait for pods most of the time.
	t.Run("services", func(t *testing.T) {
		for name, test := range map[string]func(*testing.T){
			"a sync agent publishes the certificates of the cluster": in.testSyncAgent,
			"an infrastructure provider makes what tenants order":    in.testInfrastructure,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t)
			})
		}
	})
	t.Run("reapplied manifests change no object", in.testReapply)
	if !t.Run("ordered rollout under load without failed requests", in.testRolloutUnderLoad) {
		t.FailNow()
	}
	t.Run("certificate renewal without restart", in.testCertificateRenewal)
	t.Run("rollout stops at an image that does not start", in.testBrokenRollout)
	t.Run("shards with workspaces are protected from deletion", in.testShardDeletionProtection)
	t.Run("installations with workspaces are protected from deletion", in.testRootShardDeletionProtection)
	t.Run("installation deletion removes all objects", in.testInstallationDeletion)
}

// setTwoReplicas gives the servers in the path of tenants' requests two pods each, so that one can be replaced at a
// time.
func setTwoReplicas(t *testing.T, u *unstructured.Unstructured) {
	switch u.GetKind() {
	case "RootShard", "Shard", "FrontProxy":
		set(t, u, int64(2), "spec", "replicas")
	}
}

// confirmDeletion confirms that the RootShards and Shards may be deleted with their workspaces.
func (in *installation) confirmDeletion(ctx context.Context, t *testing.T) {
	t.Helper()
	for _, kind := range []string{"RootShard", "Shard"} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(operatorv1alpha1.SchemeGroupVersion.WithKind(kind + "List"))
		if err := in.host.List(ctx, list, client.InNamespace(in.namespace)); err != nil {
			t.Errorf("list %s: %v", kind, err)
		}
		for i := range list.Items {
			patch := client.RawPatch("application/merge-patch+json", []byte(fmt.Sprintf(`{"metadata":{"annotations":{%q:"true"}}}`, operatorv1alpha1.AnnotationForceDelete)))
			if err := in.host.Patch(ctx, &list.Items[i], patch); client.IgnoreNotFound(err) != nil {
				t.Errorf("confirm the deletion of %s %s: %v", kind, list.Items[i].GetName(), err)
			}
		}
	}
}

// shardNames are the names of the shards in the installation.
var shardNames = []string{"root", "alpha", "beta"}

// testRemoteConsumers creates a workspace on each shard that binds an export of alpha, and uses it.
func (in *installation) testRemoteConsumers(t *testing.T) {
	provider := in.createWorkspaceOn(t, "root", "provider", "alpha")
	provider.apply(t, hostcluster.WidgetAPI)
	in.consumers = map[string]workspace{}
	for _, shard := range shardNames {
		consumer := in.createWorkspaceOn(t, "root", "consumer-"+shard, shard)
		consumer.apply(t, `
apiVersion: apis.kcp.io/v1alpha2
kind: APIBinding
metadata: {name: widgets}
spec: {reference: {export: {path: "`+provider.path+`", name: widgets}}}`)
		in.consumers[shard] = consumer
	}
	for shard, consumer := range in.consumers {
		eventually(t, time.Minute, "a widget on "+shard, func(ctx context.Context) error {
			widget := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"size": int64(3)}}}
			widget.SetAPIVersion("example.com/v1")
			widget.SetKind("Widget")
			widget.SetName("of-" + shard)
			return client.IgnoreAlreadyExists(newClient(t, consumer.config).Create(ctx, widget))
		})
	}
}

// testEndpointSlice waits until the endpoint slice has one URL for each shard with a consumer.
func (in *installation) testEndpointSlice(t *testing.T) {
	provider := newClient(t, workspaceConfig(in.admin, "root:provider"))
	eventually(t, time.Minute, "the addresses of all shards in the endpoint slice", func(ctx context.Context) error {
		slice := &unstructured.Unstructured{}
		slice.SetAPIVersion("apis.kcp.io/v1alpha1")
		slice.SetKind("APIExportEndpointSlice")
		if err := provider.Get(ctx, client.ObjectKey{Name: "widgets"}, slice); err != nil {
			return err
		}
		endpoints, _, _ := unstructured.NestedSlice(slice.Object, "status", "endpoints")
		if len(endpoints) != len(shardNames) {
			return fmt.Errorf("has %d of %d: %v", len(endpoints), len(shardNames), endpoints)
		}
		return nil
	})
}

// apply applies the documents of a manifest in a workspace. It retries, because a resource that was just bound may be
// missing in discovery.
func (w workspace) apply(t *testing.T, manifest string) {
	t.Helper()
	for document := range strings.SplitSeq(manifest, "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &u.Object); err != nil {
			t.Fatal(err)
		}
		eventually(t, time.Minute, u.GetKind()+" "+u.GetName()+" in "+w.path, func(ctx context.Context) error {
			return newClient(t, w.config).Apply(ctx, client.ApplyConfigurationFromUnstructured(u.DeepCopy()), fieldOwner)
		})
	}
}

// testBrokenRollout gives beta an image that does not exist and then a flag that does not exist: the rollout stops there
// and its condition has the reason, while the workspaces of beta stay available. Restoring both continues the rollout.
func (in *installation) testBrokenRollout(t *testing.T) {
	in.annotate(t, "RootShard", "root", operatorv1alpha1.AnnotationRolloutTimeout, "40s")
	good := in.deploymentImage(t, "beta-shard-kcp")
	repository, tag, _ := cutImageTag(good)
	in.setImage(t, "Shard", "beta", repository, "there-is-no-such-tag")
	eventually(t, 4*time.Minute, "the stop of the rollout", func(ctx context.Context) error {
		return in.hasMessage(ctx, "Shard", "beta", operatorv1alpha1.ConditionRolledOut, "RolloutStopped", ":there-is-no-such-tag of container kcp cannot be pulled")
	})
	in.patch(t, "Shard", "beta", fmt.Sprintf(`{"spec":{"image":{"tag":%q},"extraArgs":["--no-such-flag"]}}`, tag))
	eventually(t, 4*time.Minute, "the last line of the log in the condition", func(ctx context.Context) error {
		return in.hasMessage(ctx, "Shard", "beta", operatorv1alpha1.ConditionRolledOut, "", "unknown flag: --no-such-flag")
	})
	if err := get(t.Context(), in.admin, "/clusters/"+in.consumers["beta"].path+"/api/v1/namespaces"); err != nil {
		t.Errorf("while the rollout of its shard has stopped: %v", err)
	}
	in.checkAvailable(t)
	in.patch(t, "Shard", "beta", `{"spec":{"extraArgs":null}}`)
	eventually(t, 4*time.Minute, "readiness", in.allReady)
	if err := in.hasCondition(t.Context(), "Shard", "beta", operatorv1alpha1.ConditionRolledOut, metav1.ConditionTrue, "Current"); err != nil {
		t.Error(err)
	}
}

// testShardDeletionProtection deletes beta, which reports how many workspaces block its deletion, and is deleted after
// them.
func (in *installation) testShardDeletionProtection(t *testing.T) {
	beta := &operatorv1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Name: "beta", Namespace: in.namespace}}
	if err := in.host.Delete(t.Context(), beta); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, "the count of its workspaces", func(ctx context.Context) error {
		return in.hasCondition(ctx, "Shard", "beta", operatorv1alpha1.ConditionWorkspacesGone, metav1.ConditionFalse, "")
	})
	consumer := in.consumers["beta"]
	if err := get(t.Context(), in.admin, "/clusters/"+consumer.path+"/api/v1/namespaces"); err != nil {
		t.Errorf("its workspaces are still used: %v", err)
	}
	in.deleteWorkspace(t, consumer)
	eventually(t, 3*time.Minute, "deletion of Shard beta", func(ctx context.Context) error {
		err := in.host.Get(ctx, client.ObjectKeyFromObject(beta), beta)
		if err == nil {
			return fmt.Errorf("it exists: %+v", beta.Status.Conditions)
		}
		if !apierrors.IsNotFound(err) {
			return err
		}
		return nil
	})
	// No new workspace is placed there, and the other shards are unaffected.
	eventually(t, 3*time.Minute, "readiness without it", in.allReady)
	in.createWorkspace(t, "root", "after-beta")
}

// testRootShardDeletionProtection deletes the RootShard, which waits for the workspaces of the installation and serves
// them.
func (in *installation) testRootShardDeletionProtection(t *testing.T) {
	root := &operatorv1alpha1.RootShard{ObjectMeta: metav1.ObjectMeta{Name: "root", Namespace: in.namespace}}
	if err := in.host.Delete(t.Context(), root); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, "the count of its workspaces", func(ctx context.Context) error {
		return in.hasCondition(ctx, "RootShard", "root", operatorv1alpha1.ConditionWorkspacesGone, metav1.ConditionFalse, "HoldsWorkspaces")
	})
	if err := get(t.Context(), in.admin, "/clusters/"+in.consumers["alpha"].path+"/api/v1/namespaces"); err != nil {
		t.Errorf("its workspaces are still used: %v", err)
	}
}

func cutImageTag(image string) (repository, tag string, ok bool) {
	at := strings.LastIndex(image, ":")
	if at < 0 {
		return image, "", false
	}
	return image[:at], image[at+1:], true
}

// setImage changes the image of a custom resource.
func (in *installation) setImage(t *testing.T, kind, name, repository, tag string) {
	t.Helper()
	in.patch(t, kind, name, fmt.Sprintf(`{"spec":{"image":{"repository":%q,"tag":%q}}}`, repository, tag))
}

func (in *installation) annotate(t *testing.T, kind, name, key, value string) {
	t.Helper()
	in.patch(t, kind, name, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, key, value))
}

func (in *installation) patch(t *testing.T, kind, name, patch string) {
	t.Helper()
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(operatorv1alpha1.SchemeGroupVersion.WithKind(kind))
	u.SetNamespace(in.namespace)
	u.SetName(name)
	if err := in.host.Patch(t.Context(), u, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		t.Fatalf("patch %s %s: %v", kind, name, err)
	}
}

// hasCondition returns nil when a custom resource has a condition with this status and, unless it is "", this reason.
func (in *installation) hasCondition(ctx context.Context, kind, name, conditionType string, status metav1.ConditionStatus, reason string) error {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(operatorv1alpha1.SchemeGroupVersion.WithKind(kind))
	if err := in.host.Get(ctx, client.ObjectKey{Namespace: in.namespace, Name: name}, u); err != nil {
		return err
	}
	c := condition(u, conditionType)
	if c == nil {
		return fmt.Errorf("%s %s has no condition %s", kind, name, conditionType)
	}
	if c.Status != status || (reason != "" && c.Reason != reason) {
		return fmt.Errorf("%s %s: %s=%s, %s: %s", kind, name, conditionType, c.Status, c.Reason, c.Message)
	}
	return nil
}

// hasMessage reports whether a condition that is False has a text in its message.
func (in *installation) hasMessage(ctx context.Context, kind, name, conditionType, reason, text string) error {
	if err := in.hasCondition(ctx, kind, name, conditionType, metav1.ConditionFalse, reason); err != nil {
		return err
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(operatorv1alpha1.SchemeGroupVersion.WithKind(kind))
	if err := in.host.Get(ctx, client.ObjectKey{Namespace: in.namespace, Name: name}, u); err != nil {
		return err
	}
	if c := condition(u, conditionType); c == nil || !strings.Contains(c.Message, text) {
		return fmt.Errorf("%s %s: %s is %+v, want %q", kind, name, conditionType, c, text)
	}
	return nil
}

// operatorPod returns the pod of the operator.
func (in *installation) operatorPod(t *testing.T) *corev1.Pod {
	t.Helper()
	pods := &corev1.PodList{}
	if err := in.host.List(t.Context(), pods, client.MatchingLabels{"app.kubernetes.io/name": "atoll"}); err != nil || len(pods.Items) == 0 {
		t.Fatalf("the operator's pods: %d, %v", len(pods.Items), err)
	}
	return &pods.Items[0]
}
