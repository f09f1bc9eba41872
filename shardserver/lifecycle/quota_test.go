package lifecycle_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/atoll-dev/atoll/shardserver/lifecycle/quota"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

type quotaEnv struct {
	*shardtesting.Shard
	client client.Client
	a, b   string
}

// TestQuota runs everything against one shard.
func TestQuota(t *testing.T) {
	shard := shardtesting.Start(t)
	w := &quotaEnv{Shard: shard, client: shard.Client(t, shard.Admin(t))}
	w.a = shard.NewWorkspace(t, "root", "a").Spec.Cluster
	w.b = shard.NewWorkspace(t, "root", "b").Spec.Cluster
	for name, test := range map[string]func(*testing.T, *quotaEnv){
		"concurrent creations do not exceed it":                                 testConcurrentCreates,
		"concurrent creations and deletions do not exceed it":                   testChurn,
		"deletions are credited":                                                testReplenish,
		"only count limits are enforced":                                        testCountLimitsOnly,
		"cluster-scoped quota counts all namespaces and cluster-scoped objects": testClusterScoped,
		"quotas of the same name in other workspaces are independent":           testIsolation,
		"raised and removed limits take effect":                                 testChangedLimits,
		"dry run is limited and not charged":                                    testDryRun,
		"status of another client is corrected":                                 testForeignStatus,
	} {
		t.Run(name, func(t *testing.T) { test(t, w) })
	}
}

func (e *quotaEnv) createNamespace(t *testing.T, cluster string) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "quota-"}}
	if err := e.client.Create(shardtesting.In(t.Context(), cluster), namespace); err != nil {
		t.Fatal(err)
	}
	// The server's own objects are counted too: wait until they exist.
	shardtesting.Eventually(t, "the default objects of the namespace", func(ctx context.Context) error {
		if err := e.client.Get(shardtesting.In(ctx, cluster), client.ObjectKey{Namespace: namespace.Name, Name: "kube-root-ca.crt"}, &corev1.ConfigMap{}); err != nil {
			return err
		}
		return e.client.Get(shardtesting.In(ctx, cluster), client.ObjectKey{Namespace: namespace.Name, Name: "default"}, &corev1.ServiceAccount{})
	})
	return namespace.Name
}

func newLimits(hard map[string]int64) corev1.ResourceList {
	list := corev1.ResourceList{}
	for name, limit := range hard {
		list[corev1.ResourceName(name)] = *resource.NewQuantity(limit, resource.DecimalSI)
	}
	return list
}

// createQuota creates a quota and waits for its status.
func (e *quotaEnv) createQuota(t *testing.T, cluster, namespace, name string, hard map[string]int64, annotations map[string]string) *corev1.ResourceQuota {
	t.Helper()
	object := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: annotations},
		Spec:       corev1.ResourceQuotaSpec{Hard: newLimits(hard)},
	}
	if err := e.client.Create(shardtesting.In(t.Context(), cluster), object); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the status of the quota", func(ctx context.Context) error {
		if err := e.client.Get(shardtesting.In(ctx, cluster), client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		if len(object.Status.Hard) != len(hard) {
			return fmt.Errorf("status is %+v", object.Status)
		}
		return nil
	})
	t.Cleanup(func() { _ = e.client.Delete(shardtesting.In(context.Background(), cluster), object) })
	// Admission reads an informer, which can lag behind what the client has read.
	shardtesting.Eventually(t, "the status of the quota in admission", func(ctx context.Context) error {
		err := e.client.Create(shardtesting.In(ctx, cluster), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "probe"}}, client.DryRunAll)
		if err != nil && strings.Contains(err.Error(), "status unknown") {
			return err
		}
		return nil
	})
	return object
}

func testForeignStatus(t *testing.T, w *quotaEnv) {
	object := w.createQuota(t, w.a, w.createNamespace(t, w.a), "foreign", map[string]int64{"count/configmaps": 5}, nil)
	object.Status.Hard = newLimits(map[string]int64{"count/configmaps": 500})
	if err := w.client.Status().Update(shardtesting.In(t.Context(), w.a), object); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the status to have the limits", func(ctx context.Context) error {
		if err := w.client.Get(shardtesting.In(ctx, w.a), client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		if hard := object.Status.Hard["count/configmaps"]; hard.Value() != 5 {
			return fmt.Errorf("it has %s", hard.String())
		}
		return nil
	})
}

// eventuallyUsed waits until the status of a quota has this count.
func (e *quotaEnv) eventuallyUsed(t *testing.T, cluster string, object *corev1.ResourceQuota, name string, want int64) {
	t.Helper()
	shardtesting.Eventually(t, fmt.Sprintf("%s to be %d", name, want), func(ctx context.Context) error {
		if err := e.client.Get(shardtesting.In(ctx, cluster), client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		if used := object.Status.Used[corev1.ResourceName(name)]; used.Value() != want {
			return fmt.Errorf("it is %s", used.String())
		}
		return nil
	})
}

func (e *quotaEnv) createConfigMap(ctx context.Context, cluster, namespace, name string) error {
	return e.client.Create(shardtesting.In(ctx, cluster), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
}

func (e *quotaEnv) countConfigMaps(t *testing.T, cluster, namespace string) int {
	t.Helper()
	list := &corev1.ConfigMapList{}
	if err := e.client.List(shardtesting.In(t.Context(), cluster), list, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	return len(list.Items)
}

func assertForbidden(t *testing.T, err error, message string) {
	t.Helper()
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), message) {
		t.Errorf("got %v, want 403 with %q", err, message)
	}
}

func testConcurrentCreates(t *testing.T, w *quotaEnv) {
	namespace := w.createNamespace(t, w.a)
	object := w.createQuota(t, w.a, namespace, "few", map[string]int64{"count/configmaps": 21}, nil)
	var created, refused atomic.Int64
	var creators errgroup.Group
	for i := range 50 {
		creators.Go(func() error {
			switch err := w.createConfigMap(t.Context(), w.a, namespace, fmt.Sprintf("c-%d", i)); {
			case err == nil:
				created.Add(1)
			case apierrors.IsForbidden(err):
				refused.Add(1)
			default:
				return err
			}
			return nil
		})
	}
	if err := creators.Wait(); err != nil {
		t.Fatal(err)
	}
	if created.Load() != 20 || refused.Load() != 30 {
		t.Errorf("%d were created, %d rejected", created.Load(), refused.Load())
	}
	if count := w.countConfigMaps(t, w.a, namespace); count != 21 {
		t.Errorf("%d config maps exist", count)
	}
	w.eventuallyUsed(t, w.a, object, "count/configmaps", 21)
	assertForbidden(t, w.createConfigMap(t.Context(), w.a, namespace, "more"), `configmaps "more" is forbidden: exceeded quota: few, requested: count/configmaps=1, used: count/configmaps=21, limited: count/configmaps=21`)
}

// testChurn deletes objects, so that the controller counts while requests are charged.
func testChurn(t *testing.T, w *quotaEnv) {
	namespace := w.createNamespace(t, w.a)
	object := w.createQuota(t, w.a, namespace, "few", map[string]int64{"count/configmaps": 11}, nil)
	var writers errgroup.Group
	for i := range 20 {
		writers.Go(func() error {
			for range 30 {
				switch err := w.createConfigMap(t.Context(), w.a, namespace, fmt.Sprintf("c-%d", i)); {
				case apierrors.IsForbidden(err):
					continue
				case err != nil:
					return err
				}
				err := w.client.Delete(shardtesting.In(t.Context(), w.a), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("c-%d", i)}})
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	done := make(chan error, 1)
	go func() { done <- writers.Wait() }()
	for {
		if count := w.countConfigMaps(t, w.a, namespace); count > 11 {
			t.Errorf("%d config maps exist", count)
		}
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			w.eventuallyUsed(t, w.a, object, "count/configmaps", 1)
			return
		default:
		}
	}
}

func testReplenish(t *testing.T, w *quotaEnv) {
	namespace := w.createNamespace(t, w.a)
	object := w.createQuota(t, w.a, namespace, "one", map[string]int64{"count/configmaps": 2}, nil)
	if err := w.createConfigMap(t.Context(), w.a, namespace, "first"); err != nil {
		t.Fatal(err)
	}
	assertForbidden(t, w.createConfigMap(t.Context(), w.a, namespace, "second"), "exceeded quota")
	if err := w.client.Delete(shardtesting.In(t.Context(), w.a), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "first"}}); err != nil {
		t.Fatal(err)
	}
	w.eventuallyUsed(t, w.a, object, "count/configmaps", 1)
	if err := w.createConfigMap(t.Context(), w.a, namespace, "second"); err != nil {
		t.Error(err)
	}
}

func testCountLimitsOnly(t *testing.T, w *quotaEnv) {
	namespace := w.createNamespace(t, w.a)
	object := w.createQuota(t, w.a, namespace, "short", map[string]int64{"configmaps": 1, "pods": 1, "count/events": 0, "count/secrets": 1}, nil)
	w.eventuallyUsed(t, w.a, object, "count/secrets", 0)
	for _, name := range []corev1.ResourceName{"configmaps", "pods", "count/events"} {
		if used, ok := object.Status.Used[name]; ok {
			t.Errorf("%s is counted: %s", name, used.String())
		}
	}
	if err := w.createConfigMap(t.Context(), w.a, namespace, "first"); err != nil {
		t.Error(err)
	}
	event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "e"}, InvolvedObject: corev1.ObjectReference{Namespace: namespace}}
	if err := w.client.Create(shardtesting.In(t.Context(), w.a), event); err != nil {
		t.Error(err)
	}
}

func testClusterScoped(t *testing.T, w *quotaEnv) {
	first, second := w.createNamespace(t, w.b), w.createNamespace(t, w.b)
	roles := &rbacv1.ClusterRoleList{}
	if err := w.client.List(shardtesting.In(t.Context(), w.b), roles); err != nil {
		t.Fatal(err)
	}
	configMaps := w.countConfigMaps(t, w.b, "")
	object := w.createQuota(t, w.b, first, "all", map[string]int64{"count/configmaps": int64(configMaps + 1), "count/clusterroles.rbac.authorization.k8s.io": int64(len(roles.Items) + 1)},
		map[string]string{quota.ClusterScopedAnnotation: "true"})
	w.eventuallyUsed(t, w.b, object, "count/configmaps", int64(configMaps))
	if err := w.createConfigMap(t.Context(), w.b, second, "first"); err != nil {
		t.Fatal(err)
	}
	assertForbidden(t, w.createConfigMap(t.Context(), w.b, first, "second"), "exceeded quota: all")
	role := func(name string) *rbacv1.ClusterRole {
		return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	if err := w.client.Create(shardtesting.In(t.Context(), w.b), role("one")); err != nil {
		t.Fatal(err)
	}
	assertForbidden(t, w.client.Create(shardtesting.In(t.Context(), w.b), role("two")), "exceeded quota: all")
}

func testIsolation(t *testing.T, w *quotaEnv) {
	inA, inB := w.createNamespace(t, w.a), w.createNamespace(t, w.b)
	w.createQuota(t, w.a, inA, "same", map[string]int64{"count/configmaps": 1}, nil)
	other := w.createQuota(t, w.b, inB, "same", map[string]int64{"count/configmaps": 5}, nil)
	assertForbidden(t, w.createConfigMap(t.Context(), w.a, inA, "x"), "exceeded quota: same")
	for i := range 4 {
		if err := w.createConfigMap(t.Context(), w.b, inB, fmt.Sprintf("x-%d", i)); err != nil {
			t.Error(err)
		}
	}
	w.eventuallyUsed(t, w.b, other, "count/configmaps", 5)
}

func testChangedLimits(t *testing.T, w *quotaEnv) {
	namespace := w.createNamespace(t, w.a)
	object := w.createQuota(t, w.a, namespace, "limit", map[string]int64{"count/configmaps": 1}, nil)
	assertForbidden(t, w.createConfigMap(t.Context(), w.a, namespace, "x"), "exceeded quota")
	object.Spec.Hard = newLimits(map[string]int64{"count/configmaps": 2})
	if err := w.client.Update(shardtesting.In(t.Context(), w.a), object); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the raised limit", func(ctx context.Context) error { return w.createConfigMap(ctx, w.a, namespace, "x") })
	if err := w.client.Delete(shardtesting.In(t.Context(), w.a), object); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the removal of the limit", func(ctx context.Context) error { return w.createConfigMap(ctx, w.a, namespace, "y") })
}

func testDryRun(t *testing.T, w *quotaEnv) {
	namespace := w.createNamespace(t, w.a)
	object := w.createQuota(t, w.a, namespace, "limit", map[string]int64{"count/configmaps": 2}, nil)
	create := func() error {
		return w.client.Create(shardtesting.In(t.Context(), w.a), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "x"}}, client.DryRunAll)
	}
	if err := create(); err != nil {
		t.Error(err)
	}
	w.eventuallyUsed(t, w.a, object, "count/configmaps", 1)
	if err := w.createConfigMap(t.Context(), w.a, namespace, "y"); err != nil {
		t.Fatal(err)
	}
	w.eventuallyUsed(t, w.a, object, "count/configmaps", 2)
	// A dry run is not charged, so admission may use a slightly outdated quota.
	shardtesting.Eventually(t, "the rejection of a dry run", func(context.Context) error {
		if err := create(); !apierrors.IsForbidden(err) {
			return fmt.Errorf("got %w, want a rejection", err)
		}
		return nil
	})
	assertForbidden(t, create(), "exceeded quota")
}
