package quota

import (
	"context"
	"fmt"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/kubernetes/pkg/apis/core"

	"github.com/atoll-dev/atoll/shardserver/controller"
)

// reconcile counts the objects that a quota limits and writes the status. The order matters: the quota is read first,
// so that a later charge makes the write fail; requests in flight are read next, so that each that was charged before
// is either among them or has stored its object; objects are counted last.
func (c *Controller) reconcile(ctx context.Context, key controller.Request) (requeueAfter time.Duration, err error) {
	known := c.getLimits(key) // before reading storage, which is newer
	quota, err := c.quotas.GetLatest(ctx, key.Namespace, key.Name)
	switch {
	case apierrors.IsNotFound(err):
		c.removeQuota(key, known)
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("reading the quota: %w", err)
	}
	inFlight := c.cfg.InFlight.Counts(key.ClusterName, quota)
	used, err := c.countUsed(ctx, quota, inFlight)
	if err != nil {
		return 0, err
	}
	requeueAfter = resyncInterval
	switch {
	case len(inFlight) > 0:
		requeueAfter = inFlightRequeueDelay
	case len(used) < countLimits(quota):
		requeueAfter = unservedRequeueDelay
	}
	status := core.ResourceQuotaStatus{Hard: quota.Spec.Hard, Used: used}
	if apiequality.Semantic.DeepEqual(status, quota.Status) {
		return requeueAfter, nil
	}
	quota = quota.DeepCopy()
	quota.Status = status
	external, err := External(quota)
	if err != nil {
		return 0, err
	}
	_, err = c.cfg.Kubernetes.CoreV1().ResourceQuotas(key.Namespace).UpdateStatus(ctx, external, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return 0, fmt.Errorf("writing the status: %w", err)
	}
	return requeueAfter, nil
}

// countLimits returns how many of a quota's limits are object counts.
func countLimits(quota *core.ResourceQuota) int {
	n := 0
	for name := range quota.Spec.Hard {
		if _, ok := CountedResource(name); ok {
			n++
		}
	}
	return n
}

// countUsed returns the numbers of objects that exist, or may in a moment. For resources that the logical cluster does
// not serve it keeps the previous numbers, if any.
func (c *Controller) countUsed(ctx context.Context, quota *core.ResourceQuota, inFlight map[core.ResourceName]int64) (core.ResourceList, error) {
	used := core.ResourceList{}
	for name := range quota.Spec.Hard {
		counted, ok := CountedResource(name)
		if !ok {
			continue
		}
		count, served, err := c.count(ctx, quota, counted)
		if err != nil {
			return nil, fmt.Errorf("counting %s: %w", counted, err)
		}
		if served {
			used[name] = *resource.NewQuantity(count+inFlight[name], resource.DecimalSI)
		} else if known, ok := quota.Status.Used[name]; ok {
			used[name] = known
		}
	}
	return used, nil
}

// count returns the number of objects that a quota covers, and whether the logical cluster serves the resource.
func (c *Controller) count(ctx context.Context, quota *core.ResourceQuota, counted schema.GroupResource) (count int64, served bool, err error) {
	known, err := c.cfg.Registry.Resolve(ctx, counted)
	if err != nil || known == nil {
		return 0, false, err
	}
	namespace := quota.Namespace
	if IsClusterScoped(quota) {
		namespace = ""
	} else if !known.Namespaced {
		return 0, true, nil
	}
	if IsScoped(quota) {
		return 0, true, nil
	}
	list, err := known.Store.List(request.WithNamespace(ctx, namespace), &internalversion.ListOptions{})
	if err != nil {
		return 0, false, err
	}
	return int64(meta.LenList(list)), true, nil
}
