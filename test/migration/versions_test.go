package migration

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// checkVersions fails unless versions from before the last move have expired, whatever the revision of the shard is, and the
// version of a list is good for a watch. The object was read before the move.
func (e *env) checkVersions(t *testing.T, path string, older []string, object *corev1.ConfigMap) {
	t.Helper()
	configMaps := kubernetes.NewForConfigOrDie(e.Admin(t, path)).CoreV1().ConfigMaps(metav1.NamespaceDefault)
	for _, version := range older {
		events, err := configMaps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: version})
		if err != nil {
			t.Fatal(err)
		}
		var got []watch.Event
		for event := range events.ResultChan() {
			got = append(got, event)
		}
		if len(got) != 1 || got[0].Type != watch.Error || !apierrors.IsResourceExpired(apierrors.FromObject(got[0].Object)) {
			t.Errorf("a watch from before the move: %v", got)
		}
		for _, match := range []metav1.ResourceVersionMatch{metav1.ResourceVersionMatchExact, metav1.ResourceVersionMatchNotOlderThan} {
			if _, err := configMaps.List(t.Context(), metav1.ListOptions{ResourceVersion: version, ResourceVersionMatch: match}); !apierrors.IsResourceExpired(err) {
				t.Errorf("a list from before the move (%s): %v", match, err)
			}
		}
	}
	stale := object.DeepCopy()
	stale.Data = map[string]string{"name": "stale"}
	if _, err := configMaps.Update(t.Context(), stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("an update from before the move: %v", err)
	}
	list, err := configMaps.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	events, err := configMaps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	current, err := configMaps.Get(t.Context(), object.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	current.Labels = map[string]string{"moved": fmt.Sprint(len(older))}
	updated, err := configMaps.Update(t.Context(), current, metav1.UpdateOptions{})
	if err != nil {
		t.Fatalf("an update from after the move: %v", err)
	}
	event := <-events.ResultChan()
	if got, ok := event.Object.(*corev1.ConfigMap); !ok || got.ResourceVersion != updated.ResourceVersion {
		t.Errorf("a watch from after the move: %v, want version %s", event, updated.ResourceVersion)
	}
}

// informer is an informer of a client that knows nothing of moves.
type informer struct{ store cache.Store }

func (e *env) startInformer(t *testing.T, path string) *informer {
	t.Helper()
	factory := informers.NewSharedInformerFactory(kubernetes.NewForConfigOrDie(e.Admin(t, path)), 0)
	configMaps := factory.Core().V1().ConfigMaps().Informer()
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	return &informer{configMaps.GetStore()}
}

// checkRelisted waits until the informer has an object.
func (i *informer) checkRelisted(t *testing.T, object *corev1.ConfigMap) {
	t.Helper()
	shardtesting.Eventually(t, "the object in the informer", func(context.Context) error {
		found, _, err := i.store.GetByKey(object.Namespace + "/" + object.Name)
		if got, ok := found.(*corev1.ConfigMap); err != nil || !ok || got.ResourceVersion != object.ResourceVersion {
			return fmt.Errorf("got %v, %v", found, err)
		}
		return nil
	})
}
