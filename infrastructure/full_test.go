package infrastructure_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/backends/manifest"
	"github.com/atoll-dev/atoll/shardserver/options"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// TestWorkspaceAtItsLimit uses a workspace at its byte limit, which refuses every write that makes an object larger. This must block neither
// the takeover by another backend, nor the removal of a Template.
func TestWorkspaceAtItsLimit(t *testing.T) {
	e := newInstancesEnv(t, func(o *options.Options) { o.Objects.ScanInterval = 500 * time.Millisecond })
	for _, tenant := range []string{e.tenant, e.second} {
		e.provision(t, tenant, "mine", "small")
	}
	e.limit(t, e.tenant, true)
	e.takeOver(t, "kro")
	for _, tenant := range []string{e.tenant, e.second} {
		e.waitAbsent(t, tenant, "redis-mine")
	}

	e.limit(t, e.tenant, false)
	e.takeOver(t, manifest.Name)
	for _, tenant := range []string{e.tenant, e.second} {
		e.waitPhase(t, tenant, "mine", infrastructurev1alpha1.PhaseReady)
	}
	e.limit(t, e.tenant, true)
	removed := e.ready(t, "redis")
	if err := e.c.Delete(t.Context(), removed); err != nil {
		t.Fatal(err)
	}
	for _, tenant := range []string{e.tenant, e.second} {
		e.waitAbsent(t, tenant, "redis-mine")
	}
	e.gone(t, removed)
}

// limit makes a workspace reach its byte limit, or removes the limit, and waits until the shard enforces that.
func (e *instancesEnv) limit(t *testing.T, tenant string, isFull bool) {
	t.Helper()
	c, ctx := e.shard.Client(t, e.shard.Admin(t)), shardtesting.In(t.Context(), tenant)
	value := "null"
	if isFull {
		value = `"1048576"`
	}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, corev1alpha1.MaxTotalBytesAnnotationKey, value)
	cluster := &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Name: corev1alpha1.LogicalClusterName}}
	if err := c.Patch(ctx, cluster, client.RawPatch("application/merge-patch+json", patch)); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, fmt.Sprintf("the limit to apply: %t", isFull), func(context.Context) error {
		err := c.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "fill-"}, Data: map[string]string{"x": strings.Repeat("x", 100<<10)},
		})
		switch {
		case err == nil && isFull:
			return errors.New("the workspace is not full")
		case apierrors.IsForbidden(err) && isFull:
			return nil
		}
		return err
	})
}
