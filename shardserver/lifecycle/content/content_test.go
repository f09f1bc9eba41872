package content

import (
	"context"
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/atoll-dev/atoll/shardserver/storage"
)

// failing is a storage whose lists fail.
type failing struct {
	storage.Store
	err error
}

func (f failing) List(context.Context, *internalversion.ListOptions) (runtime.Object, error) {
	return nil, f.err
}

// A definition that is deleted while the content of its logical cluster is stops the watch cache of its resource: that is no error for a log.
func TestAResourceThatIsGoneIsAConflict(t *testing.T) {
	for _, version := range []string{Cached, Latest} {
		for name, test := range map[string]struct {
			err      error
			conflict bool
		}{
			"a watch cache that was stopped":       {apierrors.NewTooManyRequests("apiserver cacher is stopped", 1), true},
			"one that a consistent read waits for": {errors.New("apiserver cacher is stopped"), true},
			"etcd that does not answer":            {errors.New("etcdserver: request timed out"), false},
		} {
			resource := &storage.Resource{GVR: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}, Store: failing{err: test.err}}
			_, err := Delete(t.Context(), nil, []*storage.Resource{resource}, "", version, nil)
			if err == nil || apierrors.IsConflict(err) != test.conflict {
				t.Errorf("%s: got %v", name, err)
			}
		}
	}
}

func TestRemainingString(t *testing.T) {
	left := NewRemaining()
	left.Count(namespaces, nil, time.Time{})
	left.Count(schema.GroupResource{Group: "tenancy.kcp.io", Resource: "workspaces"}, []string{"b", "a"}, time.Time{})
	left.Count(namespaces, []string{"a"}, time.Time{})
	want := "Some resources are remaining: namespaces has 2 resource instances, workspaces.tenancy.kcp.io has 1 resource instances; " +
		"Some content in the logical cluster has finalizers remaining: a in 2 resource instances, b in 1 resource instances"
	if got := left.String(); got != want || left.Empty() {
		t.Errorf("got %q", got)
	}
}

func TestRemainingSince(t *testing.T) {
	left, now := NewRemaining(), time.Now()
	left.add(namespaces, &metav1.ObjectMeta{Name: "not yet"})
	if !left.Since().IsZero() {
		t.Errorf("got %s, but nothing is being deleted", left.Since())
	}
	for _, age := range []time.Duration{time.Second, time.Minute, 0} {
		left.add(namespaces, &metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{Time: now.Add(-age)}})
	}
	if got := now.Sub(left.Since()); got != time.Minute {
		t.Errorf("got %s ago, want a minute ago", got)
	}
}
