package syncagent

import (
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/syncagent/options"
	"github.com/atoll-dev/atoll/test/installation"
)

// previousSync contains the objects of api-syncagent: a Widget with a Secret of each origin, and their copies.
type formerSync struct {
	object, copied, creds, copyOfCreds, mine, copyOfMine, state *unstructured.Unstructured
}

// leaveFormer creates the objects of api-syncagent, as its documentation describes them: its labels on copies of primary objects and on
// states, complete objects in states, no metadata on copies of related objects, one finalizer for all.
func (e *env) leavePrevious(t *testing.T, c *consumer, kind schema.GroupVersionKind, name string) formerSync {
	t.Helper()
	hash := func(text string) string {
		sum := sha1.Sum([]byte(text))
		return hex.EncodeToString(sum[:])
	}
	source := map[string]string{
		"syncagent.kcp.io/remote-object-cluster":        c.Cluster,
		"syncagent.kcp.io/remote-object-namespace-hash": hash("default"),
		"syncagent.kcp.io/remote-object-name-hash":      hash(name),
	}
	spec := func() map[string]any {
		return map[string]any{"size": int64(3), "creds": name + "-creds", "mine": name + "-mine"}
	}
	f := formerSync{
		object: newObject(kind, "default", name, spec()), copied: newObject(kind, c.Cluster, "copy-of-"+name, spec()),
		creds: newSecret(c.Cluster, name+"-creds", "one", "app", "db"), copyOfCreds: newSecret("default", name+"-creds", "one", "app", "db"),
		mine: newSecret("default", name+"-mine", "one"), copyOfMine: newSecret(c.Cluster, name+"-mine", "one"),
	}
	tracked := []*unstructured.Unstructured{f.object.DeepCopy(), f.creds.DeepCopy(), f.mine.DeepCopy()}
	for _, secret := range tracked[1:] {
		delete(secret.Object, "stringData")
		secret.Object["data"], secret.Object["type"] = map[string]any{"password": one}, "Opaque"
	}
	f.object.SetFinalizers([]string{"syncagent.kcp.io/cleanup"})
	f.object.SetAnnotations(map[string]string{
		"related-resources.syncagent.kcp.io/creds.0": `{"namespace":"default","name":"` + name + `-creds","apiVersion":"v1","kind":"Secret"}`,
	})
	f.mine.SetFinalizers([]string{"syncagent.kcp.io/cleanup"})
	f.copied.SetLabels(map[string]string{"syncagent.kcp.io/agent-name": e.Name})
	labels := f.copied.GetLabels()
	maps.Copy(labels, source)
	f.copied.SetLabels(labels)
	f.copied.SetAnnotations(map[string]string{"syncagent.kcp.io/remote-object-namespace": "default", "syncagent.kcp.io/remote-object-name": name})
	f.copied.Object["spec"].(map[string]any)["defaulted"] = "here" // the service cluster has added it

	state := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: e.Namespace, Name: "obj-state-" + c.Cluster + "-" + hash(c.Cluster + name)[:20], Labels: maps.Clone(source),
	}, Data: map[string][]byte{}}
	state.Labels["syncagent.kcp.io/object-state"] = "true"
	for _, object := range tracked {
		encoded, err := json.Marshal(object.Object)
		if err != nil {
			t.Fatal(err)
		}
		state.Data[hash(object.GetKind()+object.GetNamespace()+object.GetName())] = encoded
	}
	if err := e.Service.Create(t.Context(), newNamespace(c.Cluster)); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	for _, object := range []*unstructured.Unstructured{f.object, f.mine, f.copyOfCreds} {
		c.New(t, object)
	}
	for _, object := range []client.Object{f.copied, f.creds, f.copyOfMine, state} {
		create(t, e.Service, object)
	}
	f.state = newSecret(state.Namespace, state.Name, "")
	return f
}

func TestMoveFromApiSyncagent(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	kind := e.Define(t, "Widget")
	spec := Of(kind)
	creds, mine := relatedSecret("creds", up, reference("spec.creds")), relatedSecret("mine", down, reference("spec.mine"))
	creds.Cleanup = true
	spec.Related = []syncagentv1alpha1.RelatedResourceSpec{creds, mine}
	e.Publish(t, "widgets", spec)
	exporter := e.Agent(t, func(o *options.Options) { o.DisabledControllers = []string{options.SyncController} })
	c := e.Consumer(t, installation.Alpha)
	moved, deleted := e.leavePrevious(t, c, kind, "moved"), e.leavePrevious(t, c, kind, "deleted")
	exporter.Stop(t)
	if err := c.Delete(t.Context(), deleted.object.DeepCopy()); err != nil { // while no agent runs
		t.Fatal(err)
	}

	e.Agent(t)
	patch(t, c, moved.object, `{"spec":{"size":5}}`)
	patch(t, e.Service, moved.creds, `{"stringData":{"password":"two"}}`)
	patch(t, c, moved.mine, `{"stringData":{"password":"two"}}`)
	expectField(t, e.Service, moved.copied, map[string]any{"size": int64(5), "creds": "moved-creds", "mine": "moved-mine", "defaulted": "here"}, "spec")
	expectField(t, c, moved.copyOfCreds, two, "data", "password")
	expectField(t, e.Service, moved.copyOfMine, two, "data", "password")
	expectField(t, e.Service, moved.copyOfMine, nil, "metadata", "labels")
	copied, err := get(t.Context(), c, moved.copyOfCreds)
	labels := copied.GetLabels()
	maps.DeleteFunc(labels, func(key, _ string) bool { return strings.HasPrefix(key, apisv1alpha2.ClaimedLabelKeyPrefix) }) // of kcp
	if err != nil || !maps.Equal(labels, map[string]string{"app": "db"}) {
		t.Errorf("the copy has labels %v, want those of the original (%v)", labels, err)
	}
	if copied := e.Copy(t, kind, c, moved.object); copied.GetUID() != moved.copied.GetUID() {
		t.Errorf("there is another copy, %s", copied.GetName())
	}

	if err := c.Delete(t.Context(), moved.object.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	for _, f := range []formerSync{moved, deleted} {
		for _, gone := range []struct {
			where  client.Client
			object *unstructured.Unstructured
		}{{c, f.object}, {e.Service, f.copied}, {c, f.copyOfCreds}, {e.Service, f.copyOfMine}, {e.Service, f.state}} {
			expectGone(t, gone.where, gone.object.DeepCopy())
		}
		if kept, err := get(t.Context(), c, f.mine); err != nil || len(kept.GetFinalizers()) > 0 {
			t.Errorf("the Secret of the user: finalizers %v, %v", kept.GetFinalizers(), err)
		}
		if _, err := get(t.Context(), e.Service, f.creds); err != nil {
			t.Errorf("the Secret of the service: %v", err)
		}
	}
}
