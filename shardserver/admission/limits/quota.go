package limits

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	stock "k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	quotaapi "k8s.io/apiserver/pkg/admission/plugin/resourcequota/apis/resourcequota"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/kubernetes/pkg/apis/core"

	"github.com/atoll-dev/atoll/shardserver/admission/rules"
	"github.com/atoll-dev/atoll/shardserver/lifecycle/quota"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// workspaceAdmin is the binding that makes the creator of a workspace its admin. It is exempt from limits.
const workspaceAdmin = "workspace-admin"

var clusterRoleBindings = schema.GroupResource{Group: rbacv1.GroupName, Resource: "clusterrolebindings"}

// quotaCharger is the storage of quotas with the update that admission needs.
type quotaCharger interface {
	ChargeStatus(ctx context.Context, name string, change func(stored runtime.Object) (runtime.Object, error)) error
}

// resourceQuota enforces the object count quotas of a logical cluster. Upstream's evaluators decide whether an object
// fits and word the refusal. The used count in the status of a quota is increased in storage, atomically with the
// check, before the object is stored.
type resourceQuota struct {
	*admission.Handler
	registry *storage.Registry
	quotas   *storage.Reader[*core.ResourceQuota]
	inFlight *quota.InFlight
	// limitedResources are the resources that need a quota.
	limitedResources []quotaapi.LimitedResource
}

// NewResourceQuota returns the plug-in KCPKubeResourceQuota.
func NewResourceQuota(config rules.Config) admission.Interface {
	return &resourceQuota{
		Handler:          admission.NewHandler(admission.Create, admission.Update),
		registry:         config.Registry,
		quotas:           storage.NewReader[*core.ResourceQuota](config.Registry, quota.Quotas),
		inFlight:         config.InFlight,
		limitedResources: config.LimitedResources,
	}
}

// Validate implements admission.ValidationInterface. Updates pass, since they do not change the number of objects.
func (q *resourceQuota) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetOperation() != admission.Create || a.GetSubresource() != "" || isUncounted(a) || quota.IsIgnored(a.GetResource().GroupResource()) {
		return nil
	}
	resource := a.GetResource().GroupResource()
	limit := core.ResourceName(generic.ObjectCountQuotaResourceNameFor(resource))
	matching, err := q.matching(ctx, a.GetNamespace(), limit)
	if err != nil {
		return err
	}
	if len(matching) == 0 {
		return q.checkLimitedResource(a)
	}
	if len(matching) > 1 || a.IsDryRun() {
		// All quotas are checked before the first is charged: charging one and being refused by the next would leave
		// the first too high until the next recount.
		for _, stored := range matching {
			if _, err := addUsage(stored, a, limit); err != nil {
				return err
			}
		}
	}
	if a.IsDryRun() {
		return nil
	}
	for _, stored := range matching {
		err := q.inFlight.Charge(ctx, stored, limit, func() error { return q.charge(ctx, stored, a, limit) })
		if err != nil {
			return err
		}
	}
	return nil
}

// checkLimitedResource refuses an object that no quota counts, if its resource needs a quota.
func (q *resourceQuota) checkLimitedResource(a admission.Attributes) error {
	if len(q.limitedResources) == 0 {
		return nil
	}
	_, err := stock.CheckRequest(nil, a, generic.NewObjectCountEvaluator(a.GetResource().GroupResource(), nil, ""), q.limitedResources)
	return err
}

// isUncounted reports whether an object is part of every logical cluster, and exempt from limits. It uses the name in
// the object, if there is one: a webhook may have changed it since the request was parsed.
func isUncounted(a admission.Attributes) bool {
	switch a.GetResource().GroupResource() {
	case rules.LogicalClusters:
		return true
	case clusterRoleBindings:
		if object, err := meta.Accessor(a.GetObject()); err == nil && a.GetOperation() == admission.Create {
			return object.GetName() == workspaceAdmin
		}
		return a.GetName() == workspaceAdmin
	}
	return false
}

// matching returns the quotas that limit a resource in a namespace, from the watch cache.
func (q *resourceQuota) matching(ctx context.Context, namespace string, limit core.ResourceName) ([]*core.ResourceQuota, error) {
	all, err := q.quotas.List(ctx, "", nil)
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("resolving quota: %w", err))
	}
	var matching []*core.ResourceQuota
	for _, candidate := range all {
		if _, limits := candidate.Spec.Hard[limit]; limits && quota.Covers(candidate, namespace) && !quota.IsScoped(candidate) {
			matching = append(matching, candidate)
		}
	}
	return matching, nil
}

// charge increases the used count of a quota by the object of a request. A deleted quota limits nothing.
func (q *resourceQuota) charge(ctx context.Context, known *core.ResourceQuota, a admission.Attributes, limit core.ResourceName) error {
	resource, err := q.registry.Get(quota.Quotas)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	store, ok := resource.Store.(quotaCharger)
	if !ok {
		return apierrors.NewInternalError(fmt.Errorf("the storage of quotas is %T, which does not support charging", resource.Store))
	}
	ctx = request.WithNamespace(ctx, known.Namespace)
	ctx = request.WithRequestInfo(ctx, &request.RequestInfo{
		IsResourceRequest: true, Verb: "update", APIVersion: "v1", Resource: quota.Quotas.Resource, Subresource: "status", Namespace: known.Namespace, Name: known.Name,
	})
	err = store.ChargeStatus(ctx, known.Name, func(stored runtime.Object) (runtime.Object, error) {
		current, err := rules.ObjectOf[*core.ResourceQuota](stored)
		if err != nil {
			return nil, err
		}
		charged, err := addUsage(current, a, limit)
		if err != nil {
			return nil, err
		}
		return charged, nil
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// addUsage returns a quota with the object of a request in its used count, or upstream's refusal. A limit that has not
// been counted yet refuses.
func addUsage(stored *core.ResourceQuota, a admission.Attributes, limit core.ResourceName) (*core.ResourceQuota, error) {
	external, err := quota.External(stored)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	name := corev1.ResourceName(limit)
	if _, counted := external.Status.Hard[name]; !counted {
		if external.Status.Hard == nil {
			external.Status.Hard = corev1.ResourceList{}
		}
		external.Status.Hard[name] = external.Spec.Hard[name]
	}
	after, err := stock.CheckRequest([]corev1.ResourceQuota{*external}, a, generic.NewObjectCountEvaluator(a.GetResource().GroupResource(), nil, ""), nil)
	if err != nil {
		return nil, err
	}
	result := stored.DeepCopy()
	if result.Status.Used == nil {
		result.Status.Used = core.ResourceList{}
	}
	result.Status.Used[limit] = after[0].Status.Used[name]
	return result, nil
}
