//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

// testReapply applies the same manifests twice: neither the custom resources nor the objects that the
// operator created may change.
func (in *installation) testReapply(t *testing.T) {
	manifests := in.manifests(t)
	before, children := in.apply(t, manifests...), in.generations(t)
	after := in.apply(t, manifests...)
	for i := range before {
		if before[i].GetGeneration() != after[i].GetGeneration() || before[i].GetResourceVersion() != after[i].GetResourceVersion() {
			t.Errorf("%s %s: generation %d -> %d, resource version %s -> %s", after[i].GetKind(), after[i].GetName(),
				before[i].GetGeneration(), after[i].GetGeneration(), before[i].GetResourceVersion(), after[i].GetResourceVersion())
		}
	}
	eventually(t, 4*time.Minute, "readiness", in.allReady)
	for name, generation := range in.generations(t) {
		if had, ok := children[name]; !ok || had != generation {
			t.Errorf("%s: generation %d -> %d", name, had, generation)
		}
	}
}

// generations returns the generations of the objects created by the operator that have one.
func (in *installation) generations(t *testing.T) map[string]int64 {
	t.Helper()
	out := map[string]int64{}
	for _, kind := range childKinds {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		if err := in.host.List(t.Context(), list, client.InNamespace(in.namespace)); err != nil {
			t.Fatalf("list %s: %v", kind.Kind, err)
		}
		for _, u := range list.Items {
			if u.GetGeneration() > 0 {
				out[u.GetKind()+" "+u.GetName()] = u.GetGeneration()
			}
		}
	}
	if len(out) == 0 {
		t.Error("no object of the operator has a generation")
	}
	return out
}

// testShardKill deletes the shard's pod without a grace period and reads everything again.
func (in *installation) testShardKill(t *testing.T) {
	a, b := in.data.a, in.data.b
	before := map[string][]string{a.path: a.inventory(t), b.path: b.inventory(t)}
	shard := in.onePod(t, component("rootshard"))
	if err := in.host.Delete(t.Context(), shard, client.GracePeriodSeconds(0)); err != nil {
		t.Fatalf("kill pod %s: %v", shard.Name, err)
	}
	killed := time.Now()
	eventually(t, 2*time.Minute, "a new shard pod", func(ctx context.Context) error {
		pods := &corev1.PodList{}
		if err := in.host.List(ctx, pods, client.InNamespace(in.namespace), component("rootshard")); err != nil {
			return err
		}
		for i := range pods.Items {
			if pod := &pods.Items[i]; pod.UID != shard.UID && podReady(pod) {
				return nil
			}
		}
		return fmt.Errorf("none of %d pods is new and ready", len(pods.Items))
	})
	eventually(t, time.Minute, "a response through the front proxy", func(ctx context.Context) error {
		return get(ctx, in.admin, "/clusters/"+a.path+"/api/v1/namespaces")
	})
	t.Logf("%.1fs from the kill to a response through the front proxy", time.Since(killed).Seconds())
	for _, w := range []workspace{a, b} {
		if after := w.inventory(t); !slices.Equal(after, before[w.path]) {
			t.Errorf("%s had %v before its shard was killed, and has %v", w.path, before[w.path], after)
		}
	}
	eventually(t, 4*time.Minute, "readiness", in.allReady)
	// The shard accepts writes again, and new workspaces.
	if err := a.client.Create(t.Context(), a.object("later-0")); err != nil {
		t.Errorf("create after the kill: %v", err)
	}
	in.createWorkspace(t, a.path, "later")
}

// inventory lists name, UID, resourceVersion and content of the objects in a workspace.
func (w workspace) inventory(t *testing.T) []string {
	t.Helper()
	namespaces, configMaps := &corev1.NamespaceList{}, &corev1.ConfigMapList{}
	for _, list := range []client.ObjectList{namespaces, configMaps} {
		if err := w.client.List(t.Context(), list); err != nil {
			t.Fatalf("list in %s: %v", w.path, err)
		}
	}
	var out []string
	for _, ns := range namespaces.Items {
		out = append(out, fmt.Sprintf("namespace %s %s", ns.Name, ns.UID))
	}
	for _, cm := range configMaps.Items {
		out = append(out, fmt.Sprintf("config map %s/%s %s %s %v", cm.Namespace, cm.Name, cm.UID, cm.ResourceVersion, slices.Sorted(maps.Keys(cm.Data))))
	}
	slices.Sort(out)
	return out
}

// TestEtcdMemberLoss deletes the volume of one of three etcd members with its pod, under load: the operator replaces the
// member, and all acknowledged writes are there.
func TestEtcdMemberLoss(t *testing.T) {
	t.Parallel()
	in := newInstallation(t, "kcp-e2e-members", "development")
	in.mutate = func(t *testing.T, u *unstructured.Unstructured) {
		if u.GetKind() == "RootShard" {
			set(t, u, map[string]any{"managed": map[string]any{"replicas": int64(3), "storage": map[string]any{"size": "1Gi"}}}, "spec", "etcd")
		}
	}
	if !t.Run("install", in.testInstall) {
		t.FailNow()
	}
	w := in.createWorkspace(t, "root", "members")
	if err := w.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: sharedNamespace}}); err != nil {
		t.Fatal(err)
	}
	root := &unstructured.Unstructured{}
	root.SetGroupVersionKind(operatorv1alpha1.SchemeGroupVersion.WithKind("RootShard"))
	checkHealthy := func(ctx context.Context) error {
		if err := in.host.Get(ctx, client.ObjectKey{Namespace: in.namespace, Name: "root"}, root); err != nil {
			return err
		}
		if c := condition(root, operatorv1alpha1.ConditionEtcdHealthy); c == nil || c.Status != metav1.ConditionTrue {
			return fmt.Errorf("condition EtcdHealthy is %+v", c)
		}
		return nil
	}
	eventually(t, time.Minute, "all members", checkHealthy)

	writing, stop := context.WithCancel(t.Context())
	acknowledged := make(chan []string, 1)
	go func() {
		var names []string
		for i := 0; writing.Err() == nil; i++ {
			object := w.object(fmt.Sprintf("written-%d", i))
			if err := w.client.Create(writing, object); err == nil {
				names = append(names, object.Name)
			}
		}
		acknowledged <- names
	}()
	defer stop()
	claim := &corev1.PersistentVolumeClaim{}
	key := client.ObjectKey{Namespace: in.namespace, Name: "data-root-etcd-1"}
	if err := in.host.Get(t.Context(), key, claim); err != nil {
		t.Fatal(err)
	}
	lost := claim.UID
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: in.namespace, Name: "root-etcd-1"}}
	for _, object := range []client.Object{claim, pod} { // the claim stays until its pod is deleted
		if err := in.host.Delete(t.Context(), object, client.GracePeriodSeconds(0)); err != nil {
			t.Fatal(err)
		}
	}
	deleted := time.Now()
	eventually(t, 5*time.Minute, "the replacement of the member", func(ctx context.Context) error {
		if err := in.host.Get(ctx, key, claim); err != nil {
			return err
		}
		if claim.UID == lost {
			return fmt.Errorf("claim %s is not deleted yet", claim.Name)
		}
		if err := in.host.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return err
		}
		if !podReady(pod) {
			return fmt.Errorf("pod %s is not ready; %v", pod.Name, checkHealthy(ctx))
		}
		return checkHealthy(ctx)
	})
	t.Logf("%.1fs from the deletion of the claim to three members", time.Since(deleted).Seconds())
	stop()
	names := <-acknowledged
	all := &corev1.ConfigMapList{}
	if err := w.client.List(t.Context(), all, client.InNamespace(sharedNamespace)); err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, item := range all.Items {
		found[item.Name] = true
	}
	missing := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return found[name] })
	if len(names) == 0 || len(missing) > 0 {
		t.Errorf("%d of %d acknowledged writes are missing: %v", len(missing), len(names), missing)
	}
}
