package lifecycle

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/apis/core"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/admission/admissiontest"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// missingDefault is a default object that no namespace has. It counts its creations.
type missingDefault struct{ created int }

func (d *missingDefault) missing(context.Context, string, string) (func(context.Context) error, error) {
	return func(context.Context) error {
		d.created++
		return nil
	}, nil
}

// TestNamespaceDefaultsOfDeleted: while a logical cluster is deleted and after it, the watch cache still has its namespaces as active.
func TestNamespaceDefaultsOfDeleted(t *testing.T) {
	now := metav1.Now()
	deleting := &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Name: corev1alpha1.LogicalClusterName, DeletionTimestamp: &now}}
	active := &core.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: core.NamespaceStatus{Phase: core.NamespaceActive}}
	state := admissiontest.NewShard().Cluster("ready").Add("leaving", deleting, true)
	for _, cluster := range []string{"ready", "leaving", "gone", "arriving", "system:some"} {
		state.Add(cluster, active, true)
	}
	state.RemoveNamespace("gone", "n")
	for cluster, want := range map[string]int{"ready": 1, "leaving": 0, "gone": 0, "arriving": 1, "system:some": 1, "none": 0} {
		created := &missingDefault{}
		c := newNamespaceDefaults(state.Registry, created)
		name := logicalcluster.MustParseName(cluster)
		if _, err := c.reconcile(logicalcluster.With(t.Context(), name), controller.Request{ClusterName: name, Name: "n"}); err != nil {
			t.Errorf("%s: %v", cluster, err)
		}
		if created.created != want {
			t.Errorf("%s: the default object is created %d times, want %d", cluster, created.created, want)
		}
	}
}

func newNamespaceDefaults(registry *storage.Registry, object namespaceDefault) *namespaceDefaultsController {
	return &namespaceDefaultsController{
		namespaces: storage.NewReader[*core.Namespace](registry, namespaces),
		clusters:   storage.NewReader[*corev1alpha1.LogicalCluster](registry, corev1alpha1.Resource("logicalclusters")),
		defaults:   []namespaceDefault{object},
	}
}

// lateDefault is a default object that the watch cache has observed at a resource version.
type lateDefault struct{ observedAt string }

func (d *lateDefault) missing(_ context.Context, _, resourceVersion string) (func(context.Context) error, error) {
	if resourceVersion == d.observedAt {
		return nil, nil
	}
	return func(context.Context) error { return errors.New("it exists") }, nil
}

// TestNamespaceDefaultsOfInitialNamespaces: the watch cache of a default object may observe it after that of namespaces has observed the
// namespace, although both are stored together. No request is sent then.
func TestNamespaceDefaultsOfInitialNamespaces(t *testing.T) {
	state := admissiontest.NewShard().Cluster("one")
	for _, name := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem} {
		state.Add("one", &core.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "7"}, Status: core.NamespaceStatus{Phase: core.NamespaceActive}}, true)
		c := newNamespaceDefaults(state.Registry, &lateDefault{observedAt: "7"})
		cluster := logicalcluster.MustParseName("one")
		if _, err := c.reconcile(logicalcluster.With(t.Context(), cluster), controller.Request{ClusterName: cluster, Name: name}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
