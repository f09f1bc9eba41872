package apiexport_test

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
)

// deleteWaiting binds the export "widgets", creates the object "kept" and deletes the binding, which then waits for a successor.
func (e *env) deleteWaiting(provider, consumer string, gr schema.GroupResource) *apisv1alpha2.APIBinding {
	e.t.Helper()
	binding := e.Bind(e.t, consumer, provider, "widgets", func(binding *apisv1alpha2.APIBinding) {
		binding.Spec.DeletionPolicy = apisv1alpha2.DeletionPolicyWaitForSuccessor
	})
	e.createObject(consumer, gr, "Widget", "kept")
	if err := e.Delete(clusterContext(consumer), binding); err != nil {
		e.t.Fatal(err)
	}
	return e.waitForBinding(consumer, "widgets", allOf(isBound, bindsResources("widgets"),
		hasCondition(apisv1alpha2.BindingResourceDeleteSuccess, apisv1alpha2.WaitingForSuccessorReason),
		messageContains(apisv1alpha2.BindingResourceDeleteSuccess, gr.String(), "spec.deletionPolicy")))
}

func testSuccessor(t *testing.T, s *env) {
	widgets := s.newResource("widgets")
	provider, consumer := s.newExportsWithSameIdentity(widgets, func(string) string { return "v1." + widgets.String() })
	binding := s.deleteWaiting(provider, consumer, widgets)
	kept, err := s.objectClient(consumer, widgets).Get(context.Background(), "kept", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// Objects stay readable and writable.
	s.createObject(consumer, widgets, "Widget", "late")
	if _, err := s.objectClient(consumer, widgets).Patch(context.Background(), "kept", types.MergePatchType, []byte(`{"spec":{"a":"b"}}`), metav1.PatchOptions{}); err != nil {
		t.Error(err)
	}
	// In v1alpha1 the policy is an annotation.
	old := &apisv1alpha1.APIBinding{}
	if err := s.Get(clusterContext(consumer), client.ObjectKeyFromObject(binding), old); err != nil || old.Annotations[apisv1alpha2.DeletionPolicyAnnotationKey] != "WaitForSuccessor" {
		t.Errorf("in v1alpha1: %v, %v", old.Annotations, err)
	}
	s.createBinding(consumer, "twin", provider, "twin")
	s.waitForBinding(consumer, "twin", allOf(isBound, bindsResources("widgets"), hasCondition(apisv1alpha2.InitialBindingCompleted, "")))
	s.expectDeleted(consumer, binding)
	for _, name := range []string{"kept", "late"} {
		got, err := s.objectClient(consumer, widgets).Get(context.Background(), name, metav1.GetOptions{})
		if err != nil || (name == "kept" && got.GetUID() != kept.GetUID()) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func testSuccessorIsNotAwaited(t *testing.T, s *env) {
	provider, consumer := s.newProviderAndConsumer()
	widgets := s.newResource("widgets")
	s.NewExport(t, provider, "widgets", widgets, "Widget")
	binding := s.deleteWaiting(provider, consumer, widgets)
	if err := s.Patch(clusterContext(consumer), binding, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"deletionPolicy":"Delete"}}`))); err != nil {
		t.Fatal(err)
	}
	s.expectDeleted(consumer, binding)
	if got := s.countStored(consumer, widgets); got != 0 {
		t.Errorf("%d objects remain", got)
	}
}

func testSuccessorWorkspaceDeletion(t *testing.T, s *env) {
	provider, consumer := s.newProviderAndConsumer()
	widgets := s.newResource("widgets")
	s.NewExport(t, provider, "widgets", widgets, "Widget")
	s.deleteWaiting(provider, consumer, widgets)
	workspace := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: s.uniqueName() + "-c"}}
	if err := s.Delete(clusterContext("root"), workspace); err != nil {
		t.Fatal(err)
	}
	s.expectDeleted("root", workspace)
	if keys := s.Keys(t, "/"+consumer+"/"); len(keys) > 0 {
		t.Errorf("remaining keys are %v", keys)
	}
}
