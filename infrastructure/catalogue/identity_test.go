package catalogue

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
)

// TestCatalogueSaysThatItWaits checks that a Catalogue reports that it waits for the servers of the publication.
func TestCatalogueSaysThatItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		waiting := &infrastructurev1alpha1.Catalogue{ObjectMeta: metav1.ObjectMeta{Name: "premium"}, Spec: infrastructurev1alpha1.CatalogueSpec{Export: "premium"}}
		c := interceptor.NewClient(newClient(t, waiting, cached(group)).(client.WithWatch), interceptor.Funcs{
			SubResourcePatch: func(ctx context.Context, c client.Client, name string, object client.Object, patch client.Patch, o ...client.SubResourcePatchOption) error {
				if ctx.Err() != nil { // like a client of a real server
					return ctx.Err()
				}
				return c.SubResource(name).Patch(ctx, object, patch, o...)
			},
		})
		r := &Reconciler{Client: c, Options: Options{Group: group}}
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(waiting)}); err == nil {
			t.Error("it is not tried again")
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(waiting), waiting); err != nil {
			t.Fatal(err)
		}
		ready := meta.FindStatusCondition(waiting.Status.Conditions, infrastructurev1alpha1.ConditionReady)
		if ready == nil || ready.Reason != infrastructurev1alpha1.ReasonAPIExportError || !strings.Contains(ready.Message, "the identity of the publication") {
			t.Errorf("the condition is %+v", ready)
		}
	})
}
