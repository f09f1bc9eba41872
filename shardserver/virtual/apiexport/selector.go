package apiexport

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/endpoints/request"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/shardserver/virtual"
)

// isVisible reports whether the named object of a request exists and has the visibility label.
func (w *workspace) isVisible(ctx context.Context, c *resourceRequest) (bool, error) {
	served, err := w.config.Registry.Resolve(ctx, c.resource.GroupResource)
	if served == nil || err != nil {
		return false, err
	}
	key, values := c.set.visibilityLabel(c.resource)
	return virtual.IsVisible(ctx, served.Store, c.info.Namespace, c.info.Name, func(object metav1.Object, _ bool) (bool, error) {
		return slices.Contains(values, object.GetLabels()[key]), nil
	})
}

// reviewGroups are the groups of review resources, which are not stored and have no labels.
var reviewGroups = []string{"authorization.k8s.io", "authentication.k8s.io"}

// getSelectorRules returns the admission rules for writes of claimed objects, from the selector of the accepted claim; nil
// if there are none.
func (w *workspace) getSelectorRules(ctx context.Context, c *resourceRequest) (*selectorRules, error) {
	if c.resource.claim == nil || slices.Contains(readVerbs, c.info.Verb) || slices.Contains(reviewGroups, c.resource.Group) {
		return nil, nil
	}
	for _, list := range []lister{w.consumers.listCached, w.consumers.listLatest} { // like checkBoundAPI
		bound, err := w.consumers.listByExport(ctx, c.set, c.target.Cluster, list)
		if err != nil {
			return nil, err
		}
		for _, binding := range bound {
			if accepted := findEffectiveClaim(binding, c.resource.claim); accepted != nil {
				return newSelectorRules(accepted.Selector, c.resource.GroupResource)
			}
		}
	}
	return nil, nil // privileged callers do not depend on bindings
}

// newSelectorRules returns the rules of a selector; nil if it matches everything.
func newSelectorRules(selector apisv1alpha2.PermissionClaimSelector, resource schema.GroupResource) (*selectorRules, error) {
	if selector.MatchAll {
		return nil, nil
	}
	labelSelector, err := metav1.LabelSelectorAsSelector(&selector.LabelSelector)
	if err != nil {
		return nil, err
	}
	if labelSelector.Empty() {
		labelSelector = labels.Nothing() // admission of bindings rejects an empty selector
	}
	return &selectorRules{resource: resource, selector: labelSelector, protected: selector.MatchLabels}, nil
}

// selectorRules is admission that restricts a provider to the objects that the consumer's selector matches, before and
// after a write.
type selectorRules struct {
	resource schema.GroupResource
	selector labels.Selector
	// protected are the labels that every matching object must have.
	protected map[string]string
}

var (
	_ admission.MutationInterface   = &selectorRules{}
	_ admission.ValidationInterface = &selectorRules{}
)

// Handles implements admission.Interface.
func (r *selectorRules) Handles(operation admission.Operation) bool {
	return operation == admission.Create || operation == admission.Update || operation == admission.Delete
}

// Admit implements admission.MutationInterface.
func (r *selectorRules) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != r.resource {
		return nil
	}
	if err := r.checkSelected(a, a.GetOldObject()); err != nil || a.GetOperation() == admission.Delete || a.GetSubresource() != "" {
		return err
	}
	object, err := meta.Accessor(a.GetObject())
	if err != nil {
		return err
	}
	set := maps.Clone(object.GetLabels())
	if set == nil {
		set = map[string]string{}
	}
	for _, key := range slices.Sorted(maps.Keys(r.protected)) {
		if value, has := set[key]; has && value != r.protected[key] {
			return admission.NewForbidden(a, fmt.Errorf("protected label %s must have value %s", key, r.protected[key]))
		}
		set[key] = r.protected[key]
	}
	object.SetLabels(set)
	return nil
}

// Validate implements admission.ValidationInterface.
func (r *selectorRules) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != r.resource {
		return nil
	}
	if err := r.checkSelected(a, a.GetOldObject()); err != nil || a.GetOperation() == admission.Delete || a.GetSubresource() != "" {
		return err
	}
	return r.checkSelected(a, a.GetObject())
}

// errNotSelected is the reason of Forbidden errors for objects that the selector does not match.
var errNotSelected = errors.New("object does not match required labels")

// checkReachable fails for a write of an existing object that the selector does not match. It runs before the request is
// processed, because the error of a failed patch may reveal the content of the object.
func (w *workspace) checkReachable(ctx context.Context, c *resourceRequest, rules *selectorRules) error {
	isNew := c.info.Verb == "create" && c.info.Subresource == ""
	if c.info.Name == "" || isNew || c.info.Verb == "deletecollection" {
		return nil
	}
	served, err := w.config.Registry.Resolve(ctx, c.resource.GroupResource)
	if served == nil || err != nil {
		return err
	}
	found, err := served.Store.Get(request.WithNamespace(ctx, c.info.Namespace), c.info.Name, &metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	object, err := meta.Accessor(found)
	if err != nil {
		return err
	}
	if !rules.selector.Matches(labels.Set(object.GetLabels())) {
		return apierrors.NewForbidden(c.resource.GroupResource, c.info.Name, errNotSelected)
	}
	return nil
}

// checkSelected fails for a non-nil object that the selector does not match.
func (r *selectorRules) checkSelected(a admission.Attributes, candidate runtime.Object) error {
	if candidate == nil {
		return nil
	}
	object, err := meta.Accessor(candidate)
	if err != nil {
		return err
	}
	if !r.selector.Matches(labels.Set(object.GetLabels())) {
		return admission.NewForbidden(a, errNotSelected)
	}
	return nil
}
