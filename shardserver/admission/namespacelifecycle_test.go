package admission

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/kubernetes/pkg/apis/core"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
)

func namespace(name string, phase core.NamespacePhase) *core.Namespace {
	return &core.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: core.NamespaceStatus{Phase: phase}}
}

func TestNamespaceLifecycle(t *testing.T) {
	now := metav1.Now()
	deleting := &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Name: corev1alpha1.LogicalClusterName, DeletionTimestamp: &now}}
	state := newShardState().
		cluster("one").
		put("one", namespace("active", core.NamespaceActive), true).
		put("one", namespace("going", core.NamespaceTerminating), true).
		put("one", namespace("new", core.NamespaceActive), false).
		put("two", namespace("other", core.NamespaceActive), true).
		put("leaving", deleting, true)
	configMaps := schema.GroupResource{Resource: "configmaps"}

	for name, tc := range map[string]struct {
		cluster string
		ask     ask
		is      func(error) bool
	}{
		"content may be created in an active namespace":          {"one", ask{resource: configMaps, namespace: "active", operation: admission.Create}, nil},
		"content may be created in one the cache does not know":  {"one", ask{resource: configMaps, namespace: "new", operation: admission.Create}, nil},
		"no content in a missing namespace":                      {"one", ask{resource: configMaps, namespace: "missing", operation: admission.Create}, apierrors.IsNotFound},
		"no content in a namespace of another logical cluster":   {"one", ask{resource: configMaps, namespace: "other", operation: admission.Create}, apierrors.IsNotFound},
		"no new content in a terminating namespace":              {"one", ask{resource: configMaps, namespace: "going", operation: admission.Create}, isTerminating},
		"content of a terminating namespace may be changed":      {"one", ask{resource: configMaps, namespace: "going", operation: admission.Update}, nil},
		"content of a terminating namespace may be deleted":      {"one", ask{resource: configMaps, namespace: "going", operation: admission.Delete}, nil},
		"content of a missing namespace cannot be changed":       {"one", ask{resource: configMaps, namespace: "missing", operation: admission.Update}, apierrors.IsNotFound},
		"objects without namespace pass":                         {"one", ask{resource: workspaces, operation: admission.Create}, nil},
		"an access review passes in a missing namespace":         {"one", ask{resource: localSubjectAccessReview, namespace: "missing", operation: admission.Create}, nil},
		"a namespace may be created":                             {"one", ask{resource: namespaces, name: "missing", operation: admission.Create}, nil},
		"a namespace may be deleted":                             {"two", ask{resource: namespaces, name: "other", operation: admission.Delete}, nil},
		"default may not be deleted":                             {"one", ask{resource: namespaces, name: "default", operation: admission.Delete}, apierrors.IsForbidden},
		"kube-system may not be deleted":                         {"one", ask{resource: namespaces, name: "kube-system", operation: admission.Delete}, apierrors.IsForbidden},
		"kube-public may not be deleted":                         {"one", ask{resource: namespaces, name: "kube-public", operation: admission.Delete}, apierrors.IsForbidden},
		"default may not be deleted where no LogicalCluster is":  {"gone", ask{resource: namespaces, name: "default", operation: admission.Delete}, apierrors.IsForbidden},
		"default goes with its logical cluster":                  {"leaving", ask{resource: namespaces, name: "default", operation: admission.Delete}, nil},
		"the deletion of one cluster lifts nothing in the other": {"two", ask{resource: namespaces, name: "default", operation: admission.Delete}, apierrors.IsForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			tc.ask.cluster, tc.ask.by = tc.cluster, alice
			if tc.ask.name == "" {
				tc.ask.name = "thing"
			}
			err := through(t, newNamespaceLifecycle(state.config()), tc.ask)
			if (tc.is == nil && err != nil) || (tc.is != nil && !tc.is(err)) {
				t.Fatalf("got %v", err)
			}
		})
	}
}

func isTerminating(err error) bool {
	var status *apierrors.StatusError
	return errors.As(err, &status) && apierrors.IsForbidden(err) && apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

func TestNamespaceLifecycleDistrustsTheCacheAfterADeletion(t *testing.T) {
	state := newShardState().cluster("one").
		put("one", namespace("stale", core.NamespaceActive), true).
		put("two", namespace("stale", core.NamespaceActive), true)
	plugin := newNamespaceLifecycle(state.config())
	create := ask{cluster: "one", resource: schema.GroupResource{Resource: "configmaps"}, namespace: "stale", name: "thing", by: alice, operation: admission.Create}

	state.stores[namespaces].latest["one/stale"] = namespace("stale", core.NamespaceTerminating)
	remove := ask{cluster: "one", resource: namespaces, name: "stale", by: alice, operation: admission.Delete, dryRun: true}
	if err := through(t, plugin, remove); err != nil {
		t.Fatal(err)
	}
	if err := through(t, plugin, create); err != nil {
		t.Fatalf("a dry run must leave no trace, got %v", err)
	}
	remove.dryRun = false
	if err := through(t, plugin, remove); err != nil {
		t.Fatal(err)
	}
	if err := through(t, plugin, create); !isTerminating(err) {
		t.Fatalf("got %v, want a refusal although the cache still shows the namespace as active", err)
	}
	create.cluster = "two"
	if err := through(t, plugin, create); err != nil {
		t.Fatalf("the namesake in another logical cluster is refused: %v", err)
	}
}

func TestNamespaceLifecycleRemembersABoundedNumberOfDeletions(t *testing.T) {
	plugin := newNamespaceLifecycle(newShardState().config()).(*namespaceLifecycle)
	for i := range 3 * recentlyDeleted {
		q := ask{cluster: "c" + string(rune('a'+i%26)), resource: namespaces, name: "ns-" + string(rune('a'+i/26%26)) + string(rune('a'+i/676)), by: alice, operation: admission.Delete}
		if err := through(t, plugin, q); err != nil {
			t.Fatal(err)
		}
	}
	if remembered := len(plugin.deleted.Keys()); remembered > recentlyDeleted {
		t.Fatalf("%d deletions remembered, at most %d are allowed", remembered, recentlyDeleted)
	}
}
