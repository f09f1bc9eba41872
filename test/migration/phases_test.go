package migration

import (
	"context"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
)

// allPhases are those of a move that succeeds.
var allPhases = []string{
	string(migrationv1alpha1.LogicalClusterMigrationPhasePreparing), string(migrationv1alpha1.LogicalClusterMigrationPhaseMigrating),
	string(migrationv1alpha1.LogicalClusterMigrationPhaseOriginCleanup), string(migrationv1alpha1.LogicalClusterMigrationPhaseDestinationFinalize),
	string(migrationv1alpha1.LogicalClusterMigrationPhaseCompleted),
}

// watchPhases watches a migration that is yet to be created, and returns a function that waits until it has ended and fails unless the watch
// has told of every phase, in their order.
func (e *env) watchPhases(t *testing.T, name string) (check func()) {
	t.Helper()
	resource := dynamic.NewForConfigOrDie(e.Admin(t, "root:operations")).Resource(migrationv1alpha1.SchemeGroupVersion.WithResource("logicalclustermigrations"))
	list, err := resource.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), longWait)
	t.Cleanup(cancel)
	watcher, err := watchtools.NewRetryWatcherWithContext(ctx, list.GetResourceVersion(), &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = fields.OneTermEqualSelector("metadata.name", name).String()
			return resource.Watch(ctx, options)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watcher.Stop)
	return func() {
		t.Helper()
		var seen []string
		for event := range watcher.ResultChan() {
			object, ok := event.Object.(*unstructured.Unstructured)
			if !ok {
				t.Fatalf("the watch of a migration: %v", event)
			}
			phase, _, _ := unstructured.NestedString(object.Object, "status", "phase")
			if phase != "" && !slices.Contains(seen, phase) {
				seen = append(seen, phase)
			}
			if phase == allPhases[len(allPhases)-1] {
				break
			}
		}
		if !slices.Equal(seen, allPhases) {
			t.Errorf("a watch tells of the phases %v, want %v", seen, allPhases)
		}
	}
}
