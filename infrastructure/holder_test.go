package infrastructure_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure"
	"github.com/atoll-dev/atoll/infrastructure/catalogue"
	"github.com/atoll-dev/atoll/infrastructure/template"
	"github.com/atoll-dev/atoll/infrastructure/template/removal"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// TestHolderWithoutWatches deletes the objects with the finalizer of the holder and the CRD of Templates, like the deletion of a workspace. The
// cache never observes the deletion of the last Template, because its watch ends with the CRD.
func TestHolderWithoutWatches(t *testing.T) {
	e := newWorkspaces(t)
	direct, err := client.NewWithWatch(e.workspace(t), client.Options{Scheme: infrastructure.NewScheme(group)})
	if err != nil {
		t.Fatal(err)
	}
	if err := catalogue.Ensure(t.Context(), e.c, catalogue.Options{Group: group, Export: export}); err != nil {
		t.Fatal(err)
	}
	last := newTemplate("redis", "Redis")
	last.Finalizers = []string{template.Finalizer(group)}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "provider"}}
	for _, object := range []client.Object{last, lease} {
		if err := e.c.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	offered := &apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Name: export}}
	held := map[string]client.Object{"export": offered, "lease": lease}
	ended := interceptor.NewClient(direct, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
		switch list := list.(type) {
		case *infrastructurev1alpha1.TemplateList:
			list.Items = []infrastructurev1alpha1.Template{*last}
			return nil
		case *infrastructurev1alpha1.CatalogueList:
			return nil
		}
		return c.List(ctx, list, o...)
	}})
	holder := &removal.Protection{Client: ended, Live: e.c, Group: group, Export: export, Lease: client.ObjectKeyFromObject(lease)}
	reconcile := func() time.Duration {
		t.Helper()
		result, err := holder.Reconcile(t.Context(), ctrl.Request{})
		if err != nil {
			t.Fatal(err)
		}
		return result.RequeueAfter
	}

	reconcile()
	for name, object := range held {
		if err := e.c.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil || !controllerutil.ContainsFinalizer(object, template.InUseFinalizer(group)) {
			t.Fatalf("%s is not held: %v, %v", name, object.GetFinalizers(), err)
		}
		if err := e.c.Delete(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	if after := reconcile(); after > 10*time.Second {
		t.Errorf("what is deleted is looked at again after %s", after)
	}
	for name, object := range held {
		if err := e.c.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			t.Fatalf("%s is released beside a Template: %v", name, err)
		}
	}

	removed := last.DeepCopy()
	if err := e.c.Get(t.Context(), client.ObjectKeyFromObject(last), removed); err != nil {
		t.Fatal(err)
	}
	removed.Finalizers = nil
	if err := e.c.Update(t.Context(), removed); err != nil {
		t.Fatal(err)
	}
	for _, resource := range []string{"templates.", "catalogues."} {
		definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: resource + group}}
		if err := e.c.Delete(t.Context(), definition); err != nil {
			t.Fatal(err)
		}
		shardtesting.Eventually(t, "the definition of "+resource+group+" to be gone", func(ctx context.Context) error {
			if err := e.c.Get(ctx, client.ObjectKeyFromObject(definition), definition); !apierrors.IsNotFound(err) {
				return fmt.Errorf("got %w", err)
			}
			return nil
		})
	}
	shardtesting.Eventually(t, "what was held to be gone", func(ctx context.Context) error {
		reconcile()
		for name, object := range held {
			if err := e.c.Get(ctx, client.ObjectKeyFromObject(object), object); !apierrors.IsNotFound(err) {
				return fmt.Errorf("%s has finalizers %v: %w", name, object.GetFinalizers(), err)
			}
		}
		return nil
	})
}
