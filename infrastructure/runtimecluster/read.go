package runtimecluster

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/instance"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// Get returns an object in the namespace of a tenant, including objects of other owners, or nil. It returns an InvalidError for an
// invalid name.
func (c *Cluster) Get(ctx context.Context, tenant logicalcluster.Name, gvk schema.GroupVersionKind, name string) (*unstructured.Unstructured, error) {
	if err := validateName(gvk, name); err != nil {
		return nil, err
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(gvk)
	err := c.Client.Get(ctx, client.ObjectKey{Namespace: Namespace(tenant), Name: name}, object)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading %s %s: %w", gvk.Kind, name, err)
	}
	if err != nil {
		return nil, nil
	}
	return object, nil
}

// List returns the objects in the namespace of a tenant that a selector selects, including objects of other owners. It returns an
// InvalidError if there are more than limit.
func (c *Cluster) List(ctx context.Context, tenant logicalcluster.Name, gvk schema.GroupVersionKind, selector labels.Selector, limit int) ([]*unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(gvk)
	if err := c.Client.List(ctx, list, client.InNamespace(Namespace(tenant)), client.MatchingLabelsSelector{Selector: selector}, client.Limit(int64(limit)+1)); err != nil {
		return nil, fmt.Errorf("listing %s: %w", gvk.Kind, err)
	}
	if len(list.Items) > limit {
		return nil, &InvalidError{fmt.Errorf("listing %s: there are more than %d", gvk.Kind, limit)}
	}
	objects := make([]*unstructured.Unstructured, len(list.Items))
	for i := range list.Items {
		objects[i] = &list.Items[i]
	}
	return objects, nil
}

// ReasonQuotaExceeded is the reason of the condition Ready of instances that do not fit into the quota of their tenant.
const ReasonQuotaExceeded = "QuotaExceeded"

// exceeded is a part of the message of errors and events about refused objects, which have no reason of their own.
const exceeded = "exceeded quota"

const (
	// maxEvents bounds the events that the backend reads.
	maxEvents = 500
	// eventAge is the age at which events are obsolete: controllers retry at intervals of up to a thousand seconds.
	eventAge = 20 * time.Minute
)

// quotaExceeded returns the state of an instance that does not fit into the quota.
func quotaExceeded() instance.State {
	state := failed("The quota of this workspace is exhausted; delete instances, or ask the platform for more.")
	state.Reason = ReasonQuotaExceeded
	return state
}

// quotaHandler checks whether instances are not ready because of the quota: controllers of the runtime cluster create the pods, and report
// refused pods only in events.
type quotaHandler struct {
	instance.Handler
	cluster *Cluster
}

// Apply implements instance.Handler.
func (h *quotaHandler) Apply(ctx context.Context, inst instance.Instance) (instance.State, error) {
	state, err := h.Handler.Apply(ctx, inst)
	if err != nil || state.Phase == infrastructurev1alpha1.PhaseReady || state.Phase == infrastructurev1alpha1.PhaseFailed {
		return state, err
	}
	isExceeded, err := h.cluster.isQuotaExceeded(ctx, SetOf(inst), time.Now())
	if err != nil || !isExceeded {
		return state, err
	}
	refused := quotaExceeded()
	refused.RecheckAfter = state.RecheckAfter
	return refused, nil
}

// replicaSetSuffix matches what Deployments append to the names of their ReplicaSets.
var replicaSetSuffix = regexp.MustCompile(`^-[bcdfghjklmnpqrstvwxz2456789]{6,10}$`)

// isOf reports whether an object has the given name, or is a ReplicaSet of the Deployment with that name.
func isOf(object corev1.ObjectReference, name string) bool {
	rest, ok := strings.CutPrefix(object.Name, name)
	return ok && (rest == "" || object.Kind == "ReplicaSet" && replicaSetSuffix.MatchString(rest))
}

// isQuotaExceeded reports whether a controller recently failed to create an object for a member of a set because of the quota.
func (c *Cluster) isQuotaExceeded(ctx context.Context, s Set, now time.Time) (bool, error) {
	current, err := c.readInventory(ctx, s)
	if err != nil {
		return false, err
	}
	var events corev1.EventList
	if err := c.Client.List(ctx, &events, client.InNamespace(Namespace(s.Tenant)), client.MatchingFields{"reason": "FailedCreate"}, client.Limit(maxEvents)); err != nil {
		return false, fmt.Errorf("listing events: %w", err)
	}
	for i := range events.Items {
		event := &events.Items[i]
		at := event.LastTimestamp.Time
		if event.Series != nil {
			at = event.Series.LastObservedTime.Time
		}
		isMember := func(m member) bool { return isOf(event.InvolvedObject, m.Name) }
		if strings.Contains(event.Message, exceeded) && now.Sub(at) < eventAge && slices.ContainsFunc(current.members, isMember) {
			return true, nil
		}
	}
	return false, nil
}
