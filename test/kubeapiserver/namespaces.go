package kubeapiserver

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/atoll-dev/atoll/internal/background"
)

// FinalizeNamespaces finalizes empty namespaces that are being deleted, like the controller manager, until the tests end.
func (c *Cluster) FinalizeNamespaces(t testing.TB) {
	t.Helper()
	clientset, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running background.Group
	running.Go(func() {
		for background.Sleep(ctx, 100*time.Millisecond) { // the API server may be down
			watchNamespaces(ctx, clientset)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// watchNamespaces returns when the API server ends the watch. Errors are those of a test that needs the namespace.
func watchNamespaces(ctx context.Context, clientset kubernetes.Interface) {
	events, err := clientset.CoreV1().Namespaces().Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	defer events.Stop()
	for event := range events.ResultChan() {
		namespace, ok := event.Object.(*corev1.Namespace)
		if !ok || namespace.DeletionTimestamp == nil || len(namespace.Spec.Finalizers) == 0 {
			continue
		}
		namespace.Spec.Finalizers = nil
		_, _ = clientset.CoreV1().Namespaces().Finalize(ctx, namespace, metav1.UpdateOptions{})
	}
}
