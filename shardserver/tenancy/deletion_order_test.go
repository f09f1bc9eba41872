package tenancy_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// TestBindingsOutliveOtherContent: a provider sees its consumer's objects until nothing else of the workspace is left.
func TestBindingsOutliveOtherContent(t *testing.T) {
	s := shardtesting.Start(t)
	c := s.Client(t, s.Masters(t))
	workspace := s.NewWorkspace(t, "root", "leaving")
	in, root := shardtesting.In(t.Context(), workspace.Spec.Cluster), shardtesting.In(t.Context(), "root")
	held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "held", Finalizers: []string{"example.io/held"}}}
	must(t, c.Create(in, held))
	must(t, c.Delete(root, workspace))

	shardtesting.Eventually(t, "namespace default to be terminating", func(context.Context) error {
		namespace := &corev1.Namespace{}
		if err := c.Get(in, client.ObjectKey{Name: "default"}, namespace); err != nil {
			return err
		}
		if namespace.DeletionTimestamp == nil {
			return fmt.Errorf("it is not terminating")
		}
		return nil
	})
	var bindings apisv1alpha2.APIBindingList
	must(t, c.List(in, &bindings))
	for _, binding := range bindings.Items {
		if binding.DeletionTimestamp != nil {
			t.Errorf("%s is deleted before the other content", binding.Name)
		}
	}
	if len(bindings.Items) != 2 {
		t.Errorf("%d bindings remain", len(bindings.Items))
	}

	must(t, c.Patch(in, held, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))))
	shardtesting.Eventually(t, "the workspace to be deleted", func(context.Context) error {
		err := c.Get(root, client.ObjectKeyFromObject(workspace), &tenancyv1alpha1.Workspace{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("got %v", err)
		}
		return nil
	})
	if keys := s.Keys(t, workspace.Spec.Cluster); len(keys) > 0 {
		t.Errorf("remaining keys: %v", keys)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
