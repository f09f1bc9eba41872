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
)

// isVisible tells whether the export may see the object that a request names. What does not exist, it may not.
func (w *workspace) isVisible(ctx context.Context, c *resourceRequest) (bool, error) {
	served, err := w.config.Registry.For(ctx, c.offered.GroupResource)
	if served == nil || err != nil {
		return false, err
	}
	key, values := c.set.visibilityLabel(c.offered)
	look := request.WithNamespace(ctx, c.info.Namespace)
	// The watch cache may not have a new object, or a new label, yet.
	for _, version := range []string{"0", ""} {
		found, err := served.Store.Get(look, c.info.Name, &metav1.GetOptions{ResourceVersion: version})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return false, err
		}
		object, err := meta.Accessor(found)
		if err != nil {
			return false, err
		}
		if slices.Contains(values, object.GetLabels()[key]) {
			return true, nil
		}
	}
	return false, nil
}

// reviewGroups are groups of questions to the server, which are no objects and have no labels.
var reviewGroups = []string{"authorization.k8s.io", "authentication.k8s.io"}

// selectorRules returns what writes of claimed objects must keep to, or nil: the selector with which the consumer
// accepted the claim.
func (w *workspace) selectorRules(ctx context.Context, c *resourceRequest) (*selectorRules, error) {
	if c.offered.claim == nil || slices.Contains(readVerbs, c.info.Verb) || slices.Contains(reviewGroups, c.offered.Group) {
		return nil, nil
	}
	for _, list := range []lister{w.consumers.listCached, w.consumers.listLatest} { // as for authorization
		bound, err := w.consumers.bindingsTo(ctx, c.set, c.target.Cluster, list)
		if err != nil {
			return nil, err
		}
		for _, binding := range bound {
			if accepted := effectiveClaim(binding, c.offered); accepted != nil {
				return newSelectorRules(accepted.Selector, c.offered.GroupResource)
			}
		}
	}
	return nil, nil // masters go on without a consumer's consent
}

// newSelectorRules returns the rules of a selector; nil if it chooses everything.
func newSelectorRules(selector apisv1alpha2.PermissionClaimSelector, resource schema.GroupResource) (*selectorRules, error) {
	if selector.MatchAll {
		return nil, nil
	}
	labelSelector, err := metav1.LabelSelectorAsSelector(&selector.LabelSelector)
	if err != nil {
		return nil, err
	}
	if labelSelector.Empty() {
		labelSelector = labels.Nothing() // says nothing at all: admission of bindings does not let this happen
	}
	return &selectorRules{resource: resource, selector: labelSelector, protected: selector.MatchLabels}, nil
}

// selectorRules keep a provider to the objects that a consumer's selector chooses: it cannot reach others, nor turn
// others into such.
type selectorRules struct {
	resource schema.GroupResource
	selector labels.Selector
	// protected are the labels that every such object must have.
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

// errNotSelected is why an object cannot be reached.
var errNotSelected = errors.New("object does not match required labels")

// checkReachable fails for a write of an object that there is, and that the selector does not choose: before anything of the
// request is looked at. A patch that depends on what it finds would tell of it, though it is refused in the end.
func (w *workspace) checkReachable(ctx context.Context, c *resourceRequest, rules *selectorRules) error {
	if c.info.Name == "" || c.info.Verb == "create" || c.info.Verb == "deletecollection" {
		return nil
	}
	served, err := w.config.Registry.For(ctx, c.offered.GroupResource)
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
		return apierrors.NewForbidden(c.offered.GroupResource, c.info.Name, errNotSelected)
	}
	return nil
}

// checkSelected fails for an object, if there is one, that the selector does not choose.
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
