package migration

import (
	"context"
	"fmt"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/atoll-dev/atoll/shardserver/loopback"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// cachedClient is a client of controller-runtime that reads config maps from its cache, as kcp's
// TestMigrationControllerRuntimeConfigMapClient has one.
type cachedClient struct{ client.Client }

// startCache returns a client whose cache is synced, and runs until the test ends.
func (e *env) startCache(t *testing.T, path string) cachedClient {
	t.Helper()
	config := e.Admin(t, path)
	objects, err := cache.New(config, cache.Options{Scheme: loopback.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = objects.Start(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	if _, err := objects.GetInformer(t.Context(), &corev1.ConfigMap{}); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(config, client.Options{Scheme: loopback.Scheme, Cache: &client.CacheOptions{Reader: objects}})
	if err != nil {
		t.Fatal(err)
	}
	return cachedClient{c}
}

// expect waits until the cache has an object.
func (c cachedClient) expect(t *testing.T, object *corev1.ConfigMap) {
	t.Helper()
	shardtesting.Eventually(t, "the object in the cache of a client from before the move", func(ctx context.Context) error {
		got := &corev1.ConfigMap{}
		if err := c.Get(ctx, client.ObjectKeyFromObject(object), got); err != nil {
			return err
		}
		if got.ResourceVersion != object.ResourceVersion {
			return fmt.Errorf("version %s, want %s", got.ResourceVersion, object.ResourceVersion)
		}
		return nil
	})
}

// checkListed fails unless one list, which is not repeated, has the config maps.
func checkListed(t *testing.T, c client.Client, all []*corev1.ConfigMap) {
	t.Helper()
	list := &corev1.ConfigMapList{}
	if err := c.List(t.Context(), list, client.InNamespace(metav1.NamespaceDefault)); err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for i := range list.Items {
		listed[list.Items[i].Name] = true
	}
	for _, want := range all {
		if !listed[want.Name] {
			t.Errorf("the list after the move lacks %s", want.Name)
		}
	}
}

// startWatch is a watch without a version, opened after a move.
type startWatch struct{ events watch.Interface }

// watchFromStart opens a watch of config maps without trying again.
func (e *env) watchFromStart(t *testing.T, path string) startWatch {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), longWait)
	t.Cleanup(cancel)
	clientset, err := kubernetes.NewForConfig(e.Admin(t, path))
	if err != nil {
		t.Fatal(err)
	}
	events, err := clientset.CoreV1().ConfigMaps(metav1.NamespaceDefault).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatalf("a watch right after the move: %v", err)
	}
	t.Cleanup(events.Stop)
	return startWatch{events}
}

// expect reads events until the one of an object, and fails if the watch ends before.
func (w startWatch) expect(t *testing.T, object *corev1.ConfigMap) {
	t.Helper()
	for event := range w.events.ResultChan() {
		if got, ok := event.Object.(*corev1.ConfigMap); ok && got.UID == object.UID {
			return
		}
		if event.Type == watch.Error {
			t.Fatalf("the watch after the move fails: %v", event.Object)
		}
	}
	t.Fatal("the watch after the move has ended")
}
