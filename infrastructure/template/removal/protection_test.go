package removal

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/template"
)

// TestConflictsAreRetriedQuietly checks that conflicts of a stale cache, which are common, return no errors, because those would be logged.
func TestConflictsAreRetriedQuietly(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		infrastructurev1alpha1.AddToScheme, apisv1alpha1.AddToScheme, apisv1alpha2.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	published := &infrastructurev1alpha1.Template{ObjectMeta: metav1.ObjectMeta{Name: "redis", Finalizers: []string{template.Finalizer(infrastructurev1alpha1.GroupName)}}}
	export := &apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Name: "export"}}
	build := func() client.Client {
		return fake.NewClientBuilder().WithScheme(scheme).WithObjects(published.DeepCopy(), export.DeepCopy()).Build()
	}
	p := &Protection{Client: build(), Live: build(), Group: infrastructurev1alpha1.GroupName, Export: export.Name}
	changed := &apisv1alpha2.APIExport{}
	if err := p.Live.Get(t.Context(), client.ObjectKeyFromObject(export), changed); err != nil {
		t.Fatal(err)
	}
	changed.Annotations = map[string]string{"example.org/changed": "true"}
	if err := p.Live.Update(t.Context(), changed); err != nil {
		t.Fatal(err)
	}
	if result, err := p.Reconcile(t.Context(), ctrl.Request{}); err != nil || result.RequeueAfter != conflictInterval {
		t.Errorf("with a cache that is behind: %v, %v", result, err)
	}
	p.Client = p.Live
	if result, err := p.Reconcile(t.Context(), ctrl.Request{}); err != nil || result.RequeueAfter != reconcileInterval {
		t.Errorf("with a cache that has caught up: %v, %v", result, err)
	}
}
