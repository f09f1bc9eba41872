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
	state := newFakeShard().
		cluster("one").
		add("one", namespace("active", core.NamespaceActive), true).
		add("one", namespace("going", core.NamespaceTerminating), true).
		add("one", namespace("new", core.NamespaceActive), false).
		add("two", namespace("other", core.NamespaceActive), true).
		add("leaving", deleting, true)
	configMaps := schema.GroupResource{Resource: "configmaps"}

	for name, tc := range map[string]struct {
		cluster string
		ask     testRequest
		is      func(error) bool
	}{
		"create in an active namespace":                           {"one", testRequest{resource: configMaps, namespace: "active", operation: admission.Create}, nil},
		"create in a namespace that the cache does not have":      {"one", testRequest{resource: configMaps, namespace: "new", operation: admission.Create}, nil},
		"create in a missing namespace":                           {"one", testRequest{resource: configMaps, namespace: "missing", operation: admission.Create}, apierrors.IsNotFound},
		"create in a namespace of another logical cluster":        {"one", testRequest{resource: configMaps, namespace: "other", operation: admission.Create}, apierrors.IsNotFound},
		"create in a terminating namespace":                       {"one", testRequest{resource: configMaps, namespace: "going", operation: admission.Create}, isTerminating},
		"update in a terminating namespace":                       {"one", testRequest{resource: configMaps, namespace: "going", operation: admission.Update}, nil},
		"delete in a terminating namespace":                       {"one", testRequest{resource: configMaps, namespace: "going", operation: admission.Delete}, nil},
		"update in a missing namespace":                           {"one", testRequest{resource: configMaps, namespace: "missing", operation: admission.Update}, apierrors.IsNotFound},
		"cluster-scoped object":                                   {"one", testRequest{resource: workspaces, operation: admission.Create}, nil},
		"access review in a missing namespace":                    {"one", testRequest{resource: localSubjectAccessReview, namespace: "missing", operation: admission.Create}, nil},
		"create a namespace":                                      {"one", testRequest{resource: namespaces, name: "missing", operation: admission.Create}, nil},
		"delete a namespace":                                      {"two", testRequest{resource: namespaces, name: "other", operation: admission.Delete}, nil},
		"delete default":                                          {"one", testRequest{resource: namespaces, name: "default", operation: admission.Delete}, apierrors.IsForbidden},
		"delete kube-system":                                      {"one", testRequest{resource: namespaces, name: "kube-system", operation: admission.Delete}, apierrors.IsForbidden},
		"delete kube-public":                                      {"one", testRequest{resource: namespaces, name: "kube-public", operation: admission.Delete}, apierrors.IsForbidden},
		"delete default without a LogicalCluster":                 {"gone", testRequest{resource: namespaces, name: "default", operation: admission.Delete}, apierrors.IsForbidden},
		"delete default while the logical cluster is deleted":     {"leaving", testRequest{resource: namespaces, name: "default", operation: admission.Delete}, nil},
		"delete default while another logical cluster is deleted": {"two", testRequest{resource: namespaces, name: "default", operation: admission.Delete}, apierrors.IsForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			tc.ask.cluster, tc.ask.user = tc.cluster, alice
			if tc.ask.name == "" {
				tc.ask.name = "thing"
			}
			err := admitAndValidate(t, newNamespaceLifecycle(state.config()), tc.ask)
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

func TestNamespaceLifecycleStaleCache(t *testing.T) {
	state := newFakeShard().cluster("one").
		add("one", namespace("stale", core.NamespaceActive), true).
		add("two", namespace("stale", core.NamespaceActive), true)
	plugin := newNamespaceLifecycle(state.config())
	create := testRequest{cluster: "one", resource: schema.GroupResource{Resource: "configmaps"}, namespace: "stale", name: "thing", user: alice, operation: admission.Create}

	state.stores[namespaces].latest["one/stale"] = namespace("stale", core.NamespaceTerminating)
	remove := testRequest{cluster: "one", resource: namespaces, name: "stale", user: alice, operation: admission.Delete, dryRun: true}
	if err := admitAndValidate(t, plugin, remove); err != nil {
		t.Fatal(err)
	}
	if err := admitAndValidate(t, plugin, create); err != nil {
		t.Fatalf("after a dry run: %v", err)
	}
	remove.dryRun = false
	if err := admitAndValidate(t, plugin, remove); err != nil {
		t.Fatal(err)
	}
	if err := admitAndValidate(t, plugin, create); !isTerminating(err) {
		t.Fatalf("got %v, want a rejection although the cache still has the namespace as active", err)
	}
	create.cluster = "two"
	if err := admitAndValidate(t, plugin, create); err != nil {
		t.Fatalf("the namespace of the same name in another logical cluster: %v", err)
	}
}

func TestNamespaceLifecycleDeletedLimit(t *testing.T) {
	plugin := newNamespaceLifecycle(newFakeShard().config()).(*namespaceLifecycle)
	for i := range 3 * recentlyDeleted {
		q := testRequest{cluster: "c" + string(rune('a'+i%26)), resource: namespaces, name: "ns-" + string(rune('a'+i/26%26)) + string(rune('a'+i/676)), user: alice, operation: admission.Delete}
		if err := admitAndValidate(t, plugin, q); err != nil {
			t.Fatal(err)
		}
	}
	if kept := len(plugin.deleted.Keys()); kept > recentlyDeleted {
		t.Fatalf("%d deletions are kept, want at most %d", kept, recentlyDeleted)
	}
}
