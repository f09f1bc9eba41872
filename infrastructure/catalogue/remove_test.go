package catalogue

import (
	"context"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	cachev1alpha1 "github.com/atoll-dev/atoll/api/cache/v1alpha1"
	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/template"
)

const group = "infrastructure.example.org"

func newClient(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		rbacv1.AddToScheme, apisv1alpha1.AddToScheme, apisv1alpha2.AddToScheme, cachev1alpha1.AddToScheme, infrastructurev1alpha1.AddGroupToScheme(group),
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&infrastructurev1alpha1.Catalogue{}).Build()
}

// sliceless returns not found for the endpoint slice of an export.
type sliceless struct{ template.Instances }

func (sliceless) Bindings(context.Context, []string, func(*apisv1alpha2.APIBinding) error) error {
	return apierrors.NewNotFound(apisv1alpha1.Resource("apiexportendpointslices"), "premium")
}

// TestRemovalWaitsForTheEndpointSlice checks that a Catalogue without an endpoint slice, which may be bound, stays until the slice exists again,
// unless its export is gone.
func TestRemovalWaitsForTheEndpointSlice(t *testing.T) {
	t.Parallel()
	now := metav1.Now()
	named := metav1.ObjectMeta{Name: "premium"}
	removed := &infrastructurev1alpha1.Catalogue{
		ObjectMeta: metav1.ObjectMeta{Name: "premium", Finalizers: []string{template.CatalogueFinalizer(group)}, DeletionTimestamp: &now},
		Spec:       infrastructurev1alpha1.CatalogueSpec{Export: "premium"},
	}
	export := &apisv1alpha2.APIExport{ObjectMeta: named}
	c := newClient(t, removed, export)
	r := &Reconciler{Client: c, Options: Options{Group: group}, Instances: sliceless{}}
	reconcile := func() ctrl.Result {
		t.Helper()
		result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(removed)})
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	if result := reconcile(); result.RequeueAfter == 0 {
		t.Error("the removal does not wait")
	}
	for _, object := range []client.Object{removed, export, endpoints("premium")} {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			t.Errorf("%T: %v", object, err)
		}
	}
	if err := c.Delete(t.Context(), &apisv1alpha2.APIExport{ObjectMeta: named}); err != nil {
		t.Fatal(err)
	}
	reconcile()
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(removed), removed); !apierrors.IsNotFound(err) {
		t.Errorf("without an export: %v", err)
	}
}

// unbound implements template.Instances without bindings.
type unbound struct{ template.Instances }

func (unbound) Bindings(context.Context, []string, func(*apisv1alpha2.APIBinding) error) error {
	return nil
}

// TestNamesOfTheStandardCatalogueAreRefused checks that a Catalogue with a name of the standard catalogue is refused, and that its removal does
// not change the standard catalogue.
func TestNamesOfTheStandardCatalogueAreRefused(t *testing.T) {
	t.Parallel()
	for _, name := range []string{publication, "standard"} {
		refused := &infrastructurev1alpha1.Catalogue{
			ObjectMeta: metav1.ObjectMeta{Name: "refused", Finalizers: []string{template.CatalogueFinalizer(group)}},
			Spec:       infrastructurev1alpha1.CatalogueSpec{Export: name},
		}
		options := Options{Group: group, Export: "standard"}
		standard := []client.Object{publishedBy(options.standard()), shell("standard")}
		c := newClient(t, append(standard, refused)...)
		r := &Reconciler{Client: c, Options: options, Instances: unbound{}}
		request := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(refused)}
		if _, err := r.Reconcile(t.Context(), request); err != nil {
			t.Fatal(err)
		}
		if err := c.Get(t.Context(), request.NamespacedName, refused); err != nil {
			t.Fatal(err)
		}
		ready := meta.FindStatusCondition(refused.Status.Conditions, infrastructurev1alpha1.ConditionReady)
		if ready == nil || ready.Reason != infrastructurev1alpha1.ReasonInvalidSpec || !strings.HasPrefix(ready.Message, "spec.export: "+name+" is") {
			t.Errorf("%s: the condition is %+v", name, ready)
		}
		if err := c.Delete(t.Context(), refused); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Reconcile(t.Context(), request); err != nil {
			t.Fatal(err)
		}
		for _, object := range standard {
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
				t.Errorf("after the removal of %s: %v", name, err)
			}
		}
	}
}

// TestSchemaOfTheCatalogueThatIsUsedAgainIsNotNotedAsUnused checks that a previous schema of the catalogue that is used again is not deleted as
// unused.
func TestSchemaOfTheCatalogueThatIsUsedAgainIsNotNotedAsUnused(t *testing.T) {
	t.Parallel()
	noted, err := publishedSchema(group)
	if err != nil {
		t.Fatal(err)
	}
	noted.Annotations = map[string]string{template.AnnotationUnusedSince(group): "2020-01-01T00:00:00Z"}
	export := &apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Name: "premium"}}
	c := newClient(t, noted, export)
	if err := ensureEntry(t.Context(), c, group, offer{export: "premium", slice: "premium"}, "identity"); err != nil {
		t.Fatal(err)
	}
	for _, object := range []client.Object{noted, export} {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			t.Fatal(err)
		}
	}
	if len(noted.Annotations) > 0 || len(export.Spec.Resources) != 1 || export.Spec.Resources[0].Schema != noted.Name {
		t.Errorf("the annotations are %v, the entries %v", noted.Annotations, export.Spec.Resources)
	}
}
