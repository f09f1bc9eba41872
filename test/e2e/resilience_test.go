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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
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
	eventually(t, time.Minute, "readiness", in.allReady)
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
		if err := in.host.List(t.Context(), list, client.InNamespace(namespace)); err != nil {
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
	shard := onePod(t, in.host, component("rootshard"))
	if err := in.host.Delete(t.Context(), shard, client.GracePeriodSeconds(0)); err != nil {
		t.Fatalf("kill pod %s: %v", shard.Name, err)
	}
	killed := time.Now()
	eventually(t, 2*time.Minute, "a new shard pod", func(ctx context.Context) error {
		pods := &corev1.PodList{}
		if err := in.host.List(ctx, pods, client.InNamespace(namespace), component("rootshard")); err != nil {
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
	eventually(t, time.Minute, "readiness", in.allReady)
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
