package cacheserver_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/cacheserver/options"
	cachetesting "github.com/atoll-dev/atoll/cacheserver/testing"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// eventually waits for a condition.
func eventually(t *testing.T, what string, condition func(context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		last = condition(ctx)
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("%s: %v", what, last)
	}
}

// createUntilRejected creates objects until one is rejected, and returns their number and the error.
func createUntilRejected(t *testing.T, c *client.Client, gvr schema.GroupVersionResource, create func(i int) *unstructured.Unstructured) (int, error) {
	t.Helper()
	for i := range 200 {
		if _, err := c.Create(t.Context(), gvr, testCluster, create(i)); err != nil {
			return i, err
		}
	}
	t.Fatal("no create is rejected")
	return 0, nil
}

// TestShardQuota checks that the quota of a shard does not affect others, and that the shard can delete and report.
func TestShardQuota(t *testing.T) {
	const most = 20
	small := cachetesting.Start(t, func(o *options.Options) { o.Quota.Objects, o.Quota.Bytes = most, 1<<20 })
	alpha, beta := small.Client(t, "alpha"), small.Client(t, "beta")
	export := func(i int) *unstructured.Unstructured { return newObject(exports, fmt.Sprintf("widgets-%d", i)) }
	large := func(u *unstructured.Unstructured) {
		u.SetAnnotations(map[string]string{"state": "0", "large": strings.Repeat("x", 100_000)})
	}

	count, err := createUntilRejected(t, alpha, exports, export)
	if status := apierrors.APIStatus(nil); !apierrors.IsForbidden(err) || !errors.As(err, &status) || count < most ||
		!strings.Contains(status.Status().Message, fmt.Sprintf(`shard "alpha" has %d objects in this cache, where %d are allowed (--max-objects-per-shard)`, count, most)) {
		t.Fatalf("after %d objects: %v", count, err)
	}
	key := client.Key{Shard: "alpha", Cluster: testCluster, Name: "widgets-0"}
	t.Run("existing objects can be updated", func(t *testing.T) {
		read, err := alpha.Get(t.Context(), exports, key)
		if err != nil {
			t.Fatal(err)
		}
		changed, err := read.Unstructured()
		if err != nil {
			t.Fatal(err)
		}
		changed.SetLabels(map[string]string{"a": "b"})
		if _, err := alpha.Update(t.Context(), exports, testCluster, changed); err != nil {
			t.Error(err)
		}
	})
	t.Run("reports are accepted", func(t *testing.T) {
		if _, err := alpha.Create(t.Context(), client.Reports, logicalcluster.Root, newObject(client.Reports, "alpha")); err != nil {
			t.Error(err)
		}
	})
	t.Run("other shards and users have separate quotas", func(t *testing.T) {
		if _, err := beta.Create(t.Context(), exports, testCluster, export(0)); err != nil {
			t.Error(err)
		}
		cached := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "gadgets:1234"}
		users, err := createUntilRejected(t, alpha, cached, func(i int) *unstructured.Unstructured {
			u := &unstructured.Unstructured{}
			u.SetGroupVersionKind(cached.GroupVersion().WithKind("Gadget"))
			u.SetName(fmt.Sprintf("gadget-%d", i))
			return u
		})
		if users < most || !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `users of shard "alpha"`) {
			t.Errorf("after %d objects of users: %v", users, err)
		}
	})
	t.Run("creates succeed after deletions", func(t *testing.T) {
		for i := range count - most + 2 { // the report counts as an object
			key.Name = fmt.Sprintf("widgets-%d", i)
			if err := alpha.Delete(t.Context(), exports, key, ""); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, "a creation after deletions", func(ctx context.Context) error {
			_, err := alpha.Create(ctx, exports, testCluster, newObject(exports, "later"))
			return err
		})
	})
	t.Run("bytes are limited, including replaced revisions", func(t *testing.T) {
		count, err := createUntilRejected(t, beta, exports, func(i int) *unstructured.Unstructured {
			return newObject(exports, fmt.Sprintf("large-%d", i), large)
		})
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "--max-bytes-per-shard") {
			t.Fatalf("after %d large objects: %v", count, err)
		}
		if err := updateUntilRejected(t, beta, "large-0"); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "replaced") {
			t.Errorf("repeated updates of an object: %v", err)
		}
	})
	t.Run("usage is counted after a restart", func(t *testing.T) {
		if err := small.Stop(); err != nil {
			t.Fatal(err)
		}
		small.Restart(t)
		eventually(t, "a rejected create", func(ctx context.Context) error {
			created, err := beta.Create(ctx, exports, testCluster, newObject(exports, "again"))
			if err == nil {
				_ = beta.Delete(ctx, exports, created.Key, "")
				return errors.New("the create is accepted")
			}
			if !apierrors.IsForbidden(err) {
				return err
			}
			return nil
		})
	})
}

// updateUntilRejected updates an object until an update is rejected.
func updateUntilRejected(t *testing.T, c *client.Client, name string) error {
	t.Helper()
	read, err := c.Get(t.Context(), exports, client.Key{Shard: "beta", Cluster: testCluster, Name: name})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		changed, err := read.Unstructured()
		if err != nil {
			t.Fatal(err)
		}
		annotations := changed.GetAnnotations()
		annotations["state"] = fmt.Sprint((i + 1) % 10)
		changed.SetAnnotations(annotations)
		if read, err = c.Update(t.Context(), exports, testCluster, changed); err != nil {
			return err
		}
	}
	return nil
}
