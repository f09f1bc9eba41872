package kubernetes

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/kubernetes/pkg/apis/core"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/admission/admissiontest"
	"github.com/atoll-dev/atoll/shardserver/admission/rules"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

func namespace(name string, phase core.NamespacePhase) *core.Namespace {
	return &core.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: core.NamespaceStatus{Phase: phase}}
}

func TestNamespaceLifecycle(t *testing.T) {
	now := metav1.Now()
	deleting := &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Name: corev1alpha1.LogicalClusterName, DeletionTimestamp: &now}}
	state := admissiontest.NewShard().
		Cluster("one").
		Add("one", namespace("active", core.NamespaceActive), true).
		Add("one", namespace("going", core.NamespaceTerminating), true).
		Add("one", namespace("new", core.NamespaceActive), false).
		Add("two", namespace("other", core.NamespaceActive), true).
		Add("leaving", deleting, true).
		Add("leaving", namespace("kept", core.NamespaceActive), true).
		Add("leaving", namespace("removed", core.NamespaceActive), true).RemoveNamespace("leaving", "removed").
		Add("gone", namespace("removed", core.NamespaceActive), true).RemoveNamespace("gone", "removed").
		Add("arriving", namespace("new", core.NamespaceActive), true).
		Add("system:some", namespace("one", core.NamespaceActive), true)
	configMaps := schema.GroupResource{Resource: "configmaps"}

	for name, tc := range map[string]struct {
		cluster string
		ask     admissiontest.Request
		is      func(error) bool
	}{
		"create in an active namespace":                           {"one", admissiontest.Request{Resource: configMaps, Namespace: "active", Operation: admission.Create}, nil},
		"create in a namespace that the cache does not have":      {"one", admissiontest.Request{Resource: configMaps, Namespace: "new", Operation: admission.Create}, nil},
		"create in a missing namespace":                           {"one", admissiontest.Request{Resource: configMaps, Namespace: "missing", Operation: admission.Create}, apierrors.IsNotFound},
		"create in a namespace of another logical cluster":        {"one", admissiontest.Request{Resource: configMaps, Namespace: "other", Operation: admission.Create}, apierrors.IsNotFound},
		"create in a terminating namespace":                       {"one", admissiontest.Request{Resource: configMaps, Namespace: "going", Operation: admission.Create}, isTerminating},
		"create in a namespace without a LogicalCluster":          {"arriving", admissiontest.Request{Resource: configMaps, Namespace: "new", Operation: admission.Create}, nil},
		"create in a system logical cluster":                      {"system:some", admissiontest.Request{Resource: configMaps, Namespace: "one", Operation: admission.Create}, nil},
		"create while the logical cluster is deleted":             {"leaving", admissiontest.Request{Resource: configMaps, Namespace: "kept", Operation: admission.Create}, nil},
		"create in a namespace that was deleted with others":      {"leaving", admissiontest.Request{Resource: configMaps, Namespace: "removed", Operation: admission.Create}, apierrors.IsNotFound},
		"create in a logical cluster that is gone":                {"gone", admissiontest.Request{Resource: configMaps, Namespace: "removed", Operation: admission.Create}, apierrors.IsNotFound},
		"update in a terminating namespace":                       {"one", admissiontest.Request{Resource: configMaps, Namespace: "going", Operation: admission.Update}, nil},
		"delete in a terminating namespace":                       {"one", admissiontest.Request{Resource: configMaps, Namespace: "going", Operation: admission.Delete}, nil},
		"update in a missing namespace":                           {"one", admissiontest.Request{Resource: configMaps, Namespace: "missing", Operation: admission.Update}, apierrors.IsNotFound},
		"cluster-scoped object":                                   {"one", admissiontest.Request{Resource: rules.Workspaces, Operation: admission.Create}, nil},
		"access review in a missing namespace":                    {"one", admissiontest.Request{Resource: localSubjectAccessReview, Namespace: "missing", Operation: admission.Create}, nil},
		"create a namespace":                                      {"one", admissiontest.Request{Resource: rules.Namespaces, Name: "missing", Operation: admission.Create}, nil},
		"delete a namespace":                                      {"two", admissiontest.Request{Resource: rules.Namespaces, Name: "other", Operation: admission.Delete}, nil},
		"delete default":                                          {"one", admissiontest.Request{Resource: rules.Namespaces, Name: "default", Operation: admission.Delete}, apierrors.IsForbidden},
		"delete kube-system":                                      {"one", admissiontest.Request{Resource: rules.Namespaces, Name: "kube-system", Operation: admission.Delete}, apierrors.IsForbidden},
		"delete kube-public":                                      {"one", admissiontest.Request{Resource: rules.Namespaces, Name: "kube-public", Operation: admission.Delete}, apierrors.IsForbidden},
		"delete default without a LogicalCluster":                 {"gone", admissiontest.Request{Resource: rules.Namespaces, Name: "default", Operation: admission.Delete}, apierrors.IsForbidden},
		"delete default while the logical cluster is deleted":     {"leaving", admissiontest.Request{Resource: rules.Namespaces, Name: "default", Operation: admission.Delete}, nil},
		"delete default while another logical cluster is deleted": {"two", admissiontest.Request{Resource: rules.Namespaces, Name: "default", Operation: admission.Delete}, apierrors.IsForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			tc.ask.Cluster, tc.ask.User = tc.cluster, admissiontest.Alice
			if tc.ask.Name == "" {
				tc.ask.Name = "thing"
			}
			err := admissiontest.AdmitAndValidate(t, NewNamespaceLifecycle(state.Config()), tc.ask)
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
	state := admissiontest.NewShard().Cluster("one").
		Add("one", namespace("stale", core.NamespaceActive), true).
		Add("two", namespace("stale", core.NamespaceActive), true)
	plugin := NewNamespaceLifecycle(state.Config())
	create := admissiontest.Request{Cluster: "one", Resource: schema.GroupResource{Resource: "configmaps"}, Namespace: "stale", Name: "thing", User: admissiontest.Alice, Operation: admission.Create}

	state.Add("one", namespace("stale", core.NamespaceTerminating), false)
	remove := admissiontest.Request{Cluster: "one", Resource: rules.Namespaces, Name: "stale", User: admissiontest.Alice, Operation: admission.Delete, DryRun: true}
	if err := admissiontest.AdmitAndValidate(t, plugin, remove); err != nil {
		t.Fatal(err)
	}
	if err := admissiontest.AdmitAndValidate(t, plugin, create); err != nil {
		t.Fatalf("after a dry run: %v", err)
	}
	remove.DryRun = false
	if err := admissiontest.AdmitAndValidate(t, plugin, remove); err != nil {
		t.Fatal(err)
	}
	if err := admissiontest.AdmitAndValidate(t, plugin, create); !isTerminating(err) {
		t.Fatalf("got %v, want a rejection although the cache still has the namespace as active", err)
	}
	create.Cluster = "two"
	if err := admissiontest.AdmitAndValidate(t, plugin, create); err != nil {
		t.Fatalf("the namespace of the same name in another logical cluster: %v", err)
	}
}

func TestNamespaceLifecycleDeletedLimit(t *testing.T) {
	plugin := NewNamespaceLifecycle(admissiontest.NewShard().Config()).(*namespaceLifecycle)
	for i := range 3 * recentlyDeleted {
		q := admissiontest.Request{Cluster: "c" + string(rune('a'+i%26)), Resource: rules.Namespaces, Name: "ns-" + string(rune('a'+i/26%26)) + string(rune('a'+i/676)), User: admissiontest.Alice, Operation: admission.Delete}
		if err := admissiontest.AdmitAndValidate(t, plugin, q); err != nil {
			t.Fatal(err)
		}
	}
	if kept := len(plugin.deleted.Keys()); kept > recentlyDeleted {
		t.Fatalf("%d deletions are kept, want at most %d", kept, recentlyDeleted)
	}
}

// TestNamespaceLifecycleInNewNamespace: what the shard creates together with its namespace is admitted before the namespace is stored.
func TestNamespaceLifecycleInNewNamespace(t *testing.T) {
	plugin := NewNamespaceLifecycle(admissiontest.NewShard().Cluster("one").Config()).(*namespaceLifecycle)
	admit := func(operation admission.Operation) func(context.Context) error {
		return func(ctx context.Context) error {
			q := admissiontest.Request{Cluster: "one", Resource: schema.GroupResource{Resource: "configmaps"}, Namespace: "new", Name: "thing", User: admissiontest.Alice, Operation: operation}
			return plugin.Admit(logicalcluster.With(ctx, logicalcluster.MustParseName(q.Cluster)), q.Attributes(), nil)
		}
	}
	errs := storage.Together(t.Context(), storage.InNewNamespace(admit(admission.Create)), storage.InNewNamespace(admit(admission.Update)), admit(admission.Create))
	if errs[0] != nil || !apierrors.IsNotFound(errs[1]) || !apierrors.IsNotFound(errs[2]) {
		t.Errorf("got %v", errs)
	}
	if err := storage.InNewNamespace(admit(admission.Create))(t.Context()); !apierrors.IsNotFound(err) {
		t.Errorf("alone: %v", err)
	}
}
