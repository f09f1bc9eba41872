package quota

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/kubernetes/pkg/apis/core"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

func TestInFlight(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	const name = core.ResourceName("count/configmaps")
	f, quota, cluster := NewInFlight(), &core.ResourceQuota{ObjectMeta: metav1.ObjectMeta{UID: "1"}}, logicalcluster.MustParseName("a")
	ctx, cancel := context.WithCancel(logicalcluster.With(t.Context(), cluster))
	for range 3 {
		if err := f.Charge(ctx, quota, name, func() error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	refused := errors.New("refused")
	if err := f.Charge(ctx, quota, name, func() error { return refused }); !errors.Is(err, refused) {
		t.Errorf("got %v", err)
	}
	if counts := f.Counts(cluster, quota); counts[name] != 3 {
		t.Errorf("in flight are %v", counts)
	}
	if counts := f.Counts(logicalcluster.MustParseName("b"), quota); len(counts) > 0 {
		t.Errorf("a quota of the same UID in another logical cluster has %v", counts)
	}
	cancel()
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) { return f.Len() == 0, nil })
	if err != nil {
		t.Errorf("%d quotas still have requests in flight", f.Len())
	}
	waitingCtx, cancelWaiting := context.WithCancel(logicalcluster.With(t.Context(), cluster))
	cancelWaiting()
	entry := f.acquire(quotaID{cluster, "1"}, name)
	entry.sem <- struct{}{}
	if err := f.Charge(waitingCtx, quota, name, func() error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("a request that ends while it waits: %v", err)
	}
}

func TestChargePanic(t *testing.T) {
	f, quota := NewInFlight(), &core.ResourceQuota{ObjectMeta: metav1.ObjectMeta{UID: "1"}}
	ctx, cancel := context.WithTimeout(logicalcluster.With(t.Context(), logicalcluster.MustParseName("a")), 10*time.Second)
	defer cancel()
	func() {
		defer func() { _ = recover() }()
		_ = f.Charge(ctx, quota, "count/configmaps", func() error { panic("in a plugin") })
	}()
	if f.Len() != 0 {
		t.Error("the charge is still in flight")
	}
	if err := f.Charge(ctx, quota, "count/configmaps", func() error { return nil }); err != nil {
		t.Errorf("the next charge: %v", err)
	}
}

func newResource(name string) *storage.Resource {
	return &storage.Resource{GVR: schema.GroupVersionResource{Version: "v1", Resource: name}}
}

func TestIndex(t *testing.T) {
	var queued []string
	i := newIndex(func(key controller.Request, _ time.Duration) { queued = append(queued, key.String()) })
	quota := func(cluster, name string, hard core.ResourceList) *core.ResourceQuota {
		return &core.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, Annotations: map[string]string{logicalcluster.AnnotationKey: cluster}},
			Spec:       core.ResourceQuotaSpec{Hard: hard},
		}
	}
	object := func(cluster, namespace string) *core.ConfigMap {
		return &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "x", Annotations: map[string]string{logicalcluster.AnnotationKey: cluster}}}
	}
	hard := core.ResourceList{"count/configmaps": {}, "secrets": {}}
	for _, step := range []struct {
		description string
		do          func()
		queued      string
		size        int
	}{
		{"new quota is counted", func() { i.handle(newResource("resourcequotas"), "ADDED", quota("a", "q", hard)) }, "a|n/q", 1},
		{"charge is not counted", func() {
			charged := quota("a", "q", hard)
			charged.Status = core.ResourceQuotaStatus{Hard: hard, Used: core.ResourceList{"count/configmaps": {}}}
			i.handle(newResource("resourcequotas"), "MODIFIED", charged)
		}, "", 1},
		{"status of another client is counted", func() {
			foreign := quota("a", "q", hard)
			foreign.Status.Hard = core.ResourceList{"secrets": {}}
			i.handle(newResource("resourcequotas"), "MODIFIED", foreign)
		}, "a|n/q", 1},
		{"deletion is counted", func() { i.handle(newResource("configmaps"), "DELETED", object("a", "n")) }, "a|n/q", 1},
		{"creation is not counted", func() { i.handle(newResource("configmaps"), "ADDED", object("a", "n")) }, "", 1},
		{"deletion in another namespace is not counted", func() { i.handle(newResource("configmaps"), "DELETED", object("a", "m")) }, "", 1},
		{"deletion in another logical cluster is not counted", func() { i.handle(newResource("configmaps"), "DELETED", object("b", "n")) }, "", 1},
		{"deletion of a resource without a limit is not counted", func() { i.handle(newResource("secrets"), "DELETED", object("a", "n")) }, "", 1},
		{"changed limit is counted", func() {
			i.handle(newResource("resourcequotas"), "MODIFIED", quota("a", "q", core.ResourceList{"count/secrets": {}}))
		}, "a|n/q", 1},
		{"last quota removes its logical cluster", func() { i.handle(newResource("resourcequotas"), "DELETED", quota("a", "q", hard)) }, "", 0},
	} {
		queued = nil
		step.do()
		got := ""
		if len(queued) > 0 {
			got = queued[0]
		}
		if got != step.queued || len(i.clusters) != step.size {
			t.Errorf("%s: queued %v, %d clusters", step.description, queued, len(i.clusters))
		}
	}
}

func TestIndexRemoveStaleQuota(t *testing.T) {
	i := newIndex(func(controller.Request, time.Duration) {})
	quota := &core.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "q", Annotations: map[string]string{logicalcluster.AnnotationKey: "a"}}}
	key := controller.Request{ClusterName: logicalcluster.MustParseName("a"), Namespace: "n", Name: "q"}
	i.handle(newResource("resourcequotas"), "ADDED", quota)
	before := i.getLimits(key) // then storage returns NotFound
	i.handle(newResource("resourcequotas"), "ADDED", quota)
	i.removeQuota(key, before)
	if i.getLimits(key) == nil {
		t.Error("the new quota was removed with the old one")
	}
	i.removeQuota(key, i.getLimits(key))
	if len(i.clusters) != 0 {
		t.Errorf("%d logical clusters remain", len(i.clusters))
	}
}
