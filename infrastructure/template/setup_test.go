package template

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
)

// TestDeletedExportConcernsAllTemplates checks that all Templates are reconciled when an export is being deleted: it lists none, though its
// entries stay.
func TestDeletedExportConcernsAllTemplates(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := infrastructurev1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	alder := redis(func(t *infrastructurev1alpha1.Template) { t.Name = "alder" })
	r := &Reconciler{Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(redis(), alder).Build(), Group: infrastructurev1alpha1.GroupName}
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	before, now := &apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Name: "one"}}, metav1.Now()
	after := before.DeepCopy()
	after.DeletionTimestamp = &now
	for _, step := range []struct {
		event event.UpdateEvent
		want  int
	}{
		{event.UpdateEvent{ObjectOld: before, ObjectNew: before}, 0},
		{event.UpdateEvent{ObjectOld: before, ObjectNew: after}, 2},
	} {
		r.ofEntries().Update(t.Context(), step.event, queue)
		if got := queue.Len(); got != step.want {
			t.Errorf("%d Templates are enqueued, want %d", got, step.want)
		}
	}
}
