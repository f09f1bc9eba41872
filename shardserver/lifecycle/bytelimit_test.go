package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/options"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

const (
	// eventBytes is the size of one event, floodEvents the number of events that fill the etcd of the tests.
	eventBytes  = 240 << 10
	floodEvents = 421
	// floodQuota is the quota of that etcd.
	floodQuota = 64 << 20
)

func newEvent(name string) *corev1.Event {
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, InvolvedObject: corev1.ObjectReference{Namespace: "default"},
		Message: "flood", Reason: "Flood", ReportingController: "flood", Related: &corev1.ObjectReference{FieldPath: strings.Repeat("x", eventBytes)},
	}
}

func newConfigMap(name string, bytes int) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{"x": strings.Repeat("x", bytes)}}
}

// annotate sets an annotation of a LogicalCluster, and waits until the watch cache has it: a limit that is read before is read again only
// after the next scan, or after a part of it has been written.
func (e *env) annotate(t *testing.T, cluster, key, value string) {
	t.Helper()
	object := &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Name: corev1alpha1.LogicalClusterName}}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, key, value)
	if err := e.client.Patch(shardtesting.In(t.Context(), cluster), object, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the annotation in the watch cache", func(ctx context.Context) error {
		cached := &corev1alpha1.LogicalCluster{}
		fromCache := &client.GetOptions{Raw: &metav1.GetOptions{ResourceVersion: "0"}}
		if err := e.client.Get(shardtesting.In(ctx, cluster), client.ObjectKeyFromObject(object), cached, fromCache); err != nil {
			return err
		}
		if got := cached.Annotations[key]; got != value {
			return fmt.Errorf("%s is %q", key, got)
		}
		return nil
	})
}

// storedBytes returns the size of a logical cluster in etcd.
func (e *env) storedBytes(t *testing.T, cluster string) (sum int) {
	t.Helper()
	for key, value := range e.Stored(t) {
		if strings.Contains(key, "/"+cluster+"/") {
			sum += len(value)
		}
	}
	return sum
}

// flood creates events until one is refused, at most floodEvents, and returns the refusal.
func flood(ctx context.Context, c client.Client, cluster, prefix string) (refusal error) {
	for i := range floodEvents {
		if err := c.Create(shardtesting.In(ctx, cluster), newEvent(fmt.Sprint(prefix, i))); err != nil {
			return err
		}
	}
	return nil
}

func testByteLimit(t *testing.T, w *env) {
	const limit = 2 << 20
	cluster := w.NewWorkspace(t, "root", "bounded").Spec.Cluster
	w.annotate(t, cluster, corev1alpha1.MaxTotalBytesAnnotationKey, fmt.Sprint(limit))
	tenant := w.Client(t, w.Admin(t))
	ctx := shardtesting.In(t.Context(), cluster)
	small, large := newConfigMap("small", 10), newConfigMap("large", eventBytes)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "l"}}
	held := newConfigMap("held", 100)
	held.Finalizers = []string{"example.com/hold"}
	for _, object := range []client.Object{small, large, lease, held} {
		if err := tenant.Create(ctx, object); err != nil {
			t.Fatal(err)
		}
	}
	full := fmt.Sprintf("/%d bytes)", limit)
	if err := flood(t.Context(), tenant, cluster, "first"); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), full) || !strings.Contains(err.Error(), cluster) {
		t.Fatalf("the flood ends with %v", err)
	}
	if size := w.storedBytes(t, cluster); size < limit*7/8 || size > limit*3/2 {
		t.Errorf("%d bytes are stored, the limit is %d", size, limit)
	}
	t.Run("objects do not grow", func(t *testing.T) {
		grown := small.DeepCopy()
		grown.Data["x"] = strings.Repeat("x", eventBytes)
		if err := tenant.Update(ctx, grown); !apierrors.IsForbidden(err) {
			t.Errorf("an update that grows: %v", err)
		}
		if err := tenant.Create(ctx, newConfigMap("other", 1)); !apierrors.IsForbidden(err) {
			t.Errorf("another object: %v", err)
		}
		if err := tenant.Create(ctx, newConfigMap("other", 1), client.DryRunAll); !apierrors.IsForbidden(err) {
			t.Errorf("a dry run: %v", err)
		}
	})
	t.Run("the rest works", func(t *testing.T) {
		same := small.DeepCopy()
		same.Data["x"] = strings.Repeat("y", 10)
		lease.Spec.HolderIdentity = ptr.To("somebody")
		large.Data["x"] = "smaller"
		for what, object := range map[string]client.Object{"an update of the same size": same, "a lease": lease, "an update that shrinks": large} {
			if err := tenant.Update(ctx, object); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		if err := w.client.Create(ctx, newConfigMap("system", 1)); err != nil {
			t.Errorf("an object of the system: %v", err)
		}
		if err := tenant.Delete(ctx, held); err != nil {
			t.Errorf("a deletion: %v", err)
		}
		if err := tenant.Patch(ctx, held, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
			t.Errorf("the removal of a finalizer: %v", err)
		}
		other := w.NewWorkspace(t, "root", "unbounded").Spec.Cluster
		if err := tenant.Create(shardtesting.In(t.Context(), other), newConfigMap("large", eventBytes)); err != nil {
			t.Errorf("an object in another workspace: %v", err)
		}
	})
	shardtesting.Eventually(t, "the metric", func(ctx context.Context) error {
		body, err := w.Kubernetes(t, w.Masters(t)).Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
		if err != nil || !strings.Contains(string(body), fmt.Sprintf(`atoll_logicalcluster_byte_limit{cluster=%q,shard="root"}`, cluster)) {
			return fmt.Errorf("no metric: %v", err)
		}
		return nil
	})
	if err := tenant.DeleteAllOf(ctx, &corev1.Event{}, client.InNamespace("default")); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the deletion to be noticed", func(ctx context.Context) error {
		return tenant.Create(shardtesting.In(ctx, cluster), newConfigMap("again", 1))
	})
	w.deleteWorkspace(t, "bounded", cluster)
}

// testByteLimitUnderRewrites checks that a tenant far below its limit adds objects while it updates others so often that the
// limit would be reached if each update was an addition.
func testByteLimitUnderRewrites(t *testing.T, w *env) {
	const limit = 2 << 20
	cluster := w.NewWorkspace(t, "root", "rewriting").Spec.Cluster
	w.annotate(t, cluster, corev1alpha1.MaxTotalBytesAnnotationKey, fmt.Sprint(limit))
	tenant, ctx := w.Client(t, w.Admin(t)), shardtesting.In(t.Context(), cluster)
	var stored []*corev1.ConfigMap
	for i := range 5 {
		object := newConfigMap(fmt.Sprint("large-", i), eventBytes)
		if err := tenant.Create(ctx, object); err != nil {
			t.Fatal(err)
		}
		stored = append(stored, object)
	}
	for i := range 40 {
		object := stored[i%len(stored)]
		object.Data["x"] = strings.Repeat(string(rune('a'+i%26)), eventBytes)
		if err := tenant.Update(ctx, object); err != nil {
			t.Fatal(err)
		}
		// Without the retries of a client, which hide refusals.
		body := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"small-%d"}}`, i)
		if response, answer := shardtesting.Send(t, shardtesting.At(w.Admin(t), cluster), http.MethodPost, "/api/v1/namespaces/default/configmaps", body); response.StatusCode != http.StatusCreated {
			t.Fatalf("object %d: %s: %s", i, response.Status, answer)
		}
	}
	w.deleteWorkspace(t, "rewriting", cluster)
}

// testByteLimitOfCustomResources has objects that nothing serves after their definition was deleted.
func testByteLimitOfCustomResources(t *testing.T, w *env) {
	const limit = 1 << 20
	cluster := w.NewWorkspace(t, "root", "custom-bounded").Spec.Cluster
	w.annotate(t, cluster, corev1alpha1.MaxTotalBytesAnnotationKey, fmt.Sprint(limit))
	blobs := schema.GroupVersionResource{Group: "blobs.example.com", Version: "v1", Resource: "blobs"}
	w.createCRD(t, cluster, blobs, "Blob", "Namespaced")
	tenant := dynamic.NewForConfigOrDie(shardtesting.At(w.Admin(t), cluster)).Resource(blobs).Namespace("default")
	refusal := error(nil)
	for i := 0; i < floodEvents && refusal == nil; i++ {
		_, refusal = tenant.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "blobs.example.com/v1", "kind": "Blob", "data": strings.Repeat("x", eventBytes),
			"metadata": map[string]any{"name": fmt.Sprint("b", i), "finalizers": []any{"example.com/hold"}},
		}}, metav1.CreateOptions{})
	}
	if !apierrors.IsForbidden(refusal) {
		t.Fatalf("the flood ends with %v", refusal)
	}
	w.orphan(t, cluster, blobs)
	shardtesting.Eventually(t, "orphans to count", func(ctx context.Context) error {
		err := w.Client(t, w.Admin(t)).Create(shardtesting.In(ctx, cluster), newConfigMap("x", 1), client.DryRunAll)
		if !apierrors.IsForbidden(err) {
			return fmt.Errorf("another object: %v", err)
		}
		return nil
	})
	if size := w.storedBytes(t, cluster); size > limit*5/2 {
		t.Errorf("%d bytes are stored, the limit is %d", size, limit)
	}
	w.deleteWorkspace(t, "custom-bounded", cluster)
}

// TestEtcdSpace fills an etcd of a small quota.
func TestEtcdSpace(t *testing.T) {
	configure := func(o *options.Options) { o.EmbeddedEtcd.QuotaBackendBytes = floodQuota }
	directory := t.TempDir()
	shard := shardtesting.StartIn(t, directory, configure)
	w := &env{Shard: shard, client: shard.Client(t, shard.Masters(t))}
	flooder, victim := w.NewWorkspace(t, "root", "flooder").Spec.Cluster, w.NewWorkspace(t, "root", "victim").Spec.Cluster
	w.annotate(t, flooder, corev1alpha1.MaxTotalObjectsAnnotationKey, "100")
	tenant := w.Client(t, w.Admin(t))
	create := func(cluster, name string) error {
		return tenant.Create(shardtesting.In(t.Context(), cluster), newConfigMap(name, 10))
	}
	finalized := newConfigMap("finalized", 10)
	finalized.Finalizers = []string{"example.com/hold"}
	for _, object := range []client.Object{newConfigMap("deleted-full", 10), newConfigMap("deleted-short", 10), finalized} {
		if err := tenant.Create(shardtesting.In(t.Context(), victim), object); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(cluster, name string) error {
		return tenant.Delete(shardtesting.In(t.Context(), cluster), newConfigMap(name, 0))
	}

	if err := flood(t.Context(), tenant, flooder, "first"); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "byte limit") {
		t.Fatalf("the flood ends with %v", err)
	}
	if size := w.storedBytes(t, flooder); size > floodQuota/8 {
		t.Errorf("one workspace has %d bytes in an etcd of %d", size, floodQuota)
	}
	if err := create(victim, "neighbour"); err != nil {
		t.Errorf("another workspace: %v", err)
	}
	if err := w.Stop(); err != nil {
		t.Fatal(err)
	}
	w.Shard = shardtesting.StartIn(t, directory, configure)
	w.client, tenant = w.Client(t, w.Masters(t)), w.Client(t, w.Admin(t))
	if err := flood(t.Context(), tenant, flooder, "restarted"); !apierrors.IsForbidden(err) {
		t.Errorf("after a restart the flood ends with %v", err)
	}
	if size := w.storedBytes(t, flooder); size > floodQuota/8 {
		t.Errorf("after a restart one workspace has %d bytes in an etcd of %d", size, floodQuota)
	}

	w.annotate(t, flooder, corev1alpha1.MaxTotalBytesAnnotationKey, "0")
	isInsufficient := func(err error) bool {
		var status apierrors.APIStatus
		return errors.As(err, &status) && status.Status().Code == http.StatusInsufficientStorage && strings.Contains(err.Error(), "almost full")
	}
	shardtesting.Eventually(t, "the watermark", func(ctx context.Context) error {
		err := flood(ctx, tenant, flooder, fmt.Sprint("second", w.Revision(t), "-"))
		if isInsufficient(err) {
			return nil
		}
		return fmt.Errorf("the flood ends with %w", err)
	})
	if err := create(victim, "short"); !isInsufficient(err) {
		t.Errorf("a creation while etcd is almost full: %v", err)
	}
	if err := w.client.Create(shardtesting.In(t.Context(), victim), newConfigMap("system", 10)); err != nil {
		t.Errorf("a creation by the system while etcd is almost full: %v", err)
	}
	if err := remove(victim, "deleted-short"); err != nil {
		t.Errorf("a deletion while etcd is almost full: %v", err)
	}
	if err := remove(victim, "finalized"); err != nil {
		t.Errorf("the deletion of an object with a finalizer: %v", err)
	}
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
	if err := tenant.Patch(shardtesting.In(t.Context(), victim), newConfigMap("finalized", 0), patch); err != nil {
		t.Errorf("the removal of a finalizer while etcd is almost full: %v", err)
	}
	readyz := func() string {
		body, _ := w.Kubernetes(t, w.Masters(t)).Discovery().RESTClient().Get().AbsPath("/readyz").Param("verbose", "").DoRaw(t.Context())
		return string(body)
	}
	if body := readyz(); !strings.Contains(body, "[+]etcd-space ok") {
		t.Errorf("almost full: %s", body)
	}
	shardtesting.Eventually(t, "the condition of the shard", func(ctx context.Context) error {
		return w.expectShardMessage(ctx, "almost full")
	})

	if err := flood(t.Context(), w.client, victim, "alarm"); err == nil || !strings.Contains(err.Error(), "database space exceeded") {
		t.Fatalf("the flood of the system ends with %v", err)
	}
	shardtesting.Eventually(t, "the alarm in /readyz", func(context.Context) error {
		if body := readyz(); !strings.Contains(body, "[-]etcd-space failed") {
			return fmt.Errorf("%s", body)
		}
		return nil
	})
	if err := create(victim, "full"); !isInsufficient(err) {
		t.Errorf("a creation while etcd is full: %v", err)
	}
	if err := remove(victim, "deleted-full"); err != nil {
		t.Errorf("a deletion while etcd is full: %v", err)
	}
}

// expectShardMessage returns an error unless the shard accepts no workspaces for the given reason.
func (e *env) expectShardMessage(ctx context.Context, want string) error {
	shard := &corev1alpha1.Shard{}
	if err := e.client.Get(shardtesting.In(ctx, "root"), client.ObjectKey{Name: "root"}, shard); err != nil {
		return err
	}
	for _, condition := range shard.Status.Conditions {
		if condition.Type == corev1alpha1.ShardSchedulable && strings.Contains(condition.Message, want) && shard.Status.Capacity.Storage().Value() == floodQuota {
			return nil
		}
	}
	return fmt.Errorf("status %+v", shard.Status)
}
