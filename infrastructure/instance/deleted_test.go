package instance

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
)

// unreadable is a client that returns an error for reads of an instance.
type unreadable struct {
	dynamic.NamespaceableResourceInterface
	err error
}

func (u unreadable) Get(context.Context, string, metav1.GetOptions, ...string) (*unstructured.Unstructured, error) {
	return &unstructured.Unstructured{}, u.err
}

// deleting counts calls of Delete.
type deleting struct {
	Handler
	count int
}

func (d *deleting) Delete(context.Context, Instance) (bool, error) {
	d.count++
	return true, nil
}

// TestMissingInstancesAreVerified checks that the objects of an instance are deleted only after a server reports that the instance is gone, and
// that the request is retried if the server does not answer.
func TestMissingInstancesAreVerified(t *testing.T) {
	t.Parallel()
	resource := bindings.GroupResource()
	notServed := apierrors.NewGenericServerResponse(404, "get", resource, "", "", 0, true)
	for name, tc := range map[string]struct {
		err     error
		deleted int
		retried bool
	}{
		"it is there again":           {nil, 0, false},
		"it is gone":                  {apierrors.NewNotFound(resource, "it"), 1, false},
		"the server does not answer":  {errors.New("connection refused"), 0, true},
		"the server has no time":      {apierrors.NewTooManyRequests("", 1), 0, true},
		"the workspace is refused":    {apierrors.NewForbidden(resource, "it", nil), 0, false},
		"the workspace is not served": {notServed, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			handler, object := &deleting{}, &unstructured.Unstructured{}
			object.SetName("it")
			p := &reconciliation{runner: &runner{Options: Options{Handler: handler}}, kind: &kind{client: unreadable{err: tc.err}}, ctx: t.Context(), instance: Instance{Object: object}}
			if _, err := p.reconcileDeleted(); (err != nil) != tc.retried || handler.count != tc.deleted {
				t.Errorf("deleted %d times, error %v", handler.count, err)
			}
		})
	}
}
