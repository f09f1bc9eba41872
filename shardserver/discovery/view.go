package discovery

import (
	"fmt"
	"io"
	"net/http"
	"slices"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Verbs are the verbs of a view by resource and subresource ("<resource>/<subresource>").
type Verbs map[schema.GroupResource][]string

// Restrict returns a view, such as that of a virtual workspace, with the given resources and subresources and at most the
// given verbs.
func (c *Compiled) Restrict(verbs Verbs) *Compiled {
	view := &Compiled{restriction: verbs}
	for _, from := range c.groups {
		visible := group{name: from.name}
		for _, version := range from.versions {
			if restricted := verbs.restrict(from.name, version); len(restricted.unaggregated) > 0 {
				visible.versions = append(visible.versions, restricted)
			}
		}
		if len(visible.versions) > 0 {
			view.groups = append(view.groups, visible)
			view.addResources(visible)
		}
	}
	return view
}

// restrict returns the view of a version of a group.
func (v Verbs) restrict(group string, from groupVersion) groupVersion {
	restricted := groupVersion{name: from.name}
	for _, resource := range from.unaggregated {
		resource.Verbs = v.intersect(schema.GroupResource{Group: group, Resource: resource.Name}, resource.Verbs)
		if len(resource.Verbs) > 0 {
			restricted.unaggregated = append(restricted.unaggregated, resource)
		}
	}
	for _, resource := range from.aggregated {
		var subresources []apidiscoveryv2.APISubresourceDiscovery
		for _, sub := range resource.Subresources {
			sub.Verbs = v.intersect(schema.GroupResource{Group: group, Resource: resource.Resource + "/" + sub.Subresource}, sub.Verbs)
			if len(sub.Verbs) > 0 {
				subresources = append(subresources, sub)
			}
		}
		resource.Verbs, resource.Subresources = v.intersect(schema.GroupResource{Group: group, Resource: resource.Resource}, resource.Verbs), subresources
		if len(resource.Verbs) > 0 {
			restricted.aggregated = append(restricted.aggregated, resource)
		}
	}
	return restricted
}

// intersect returns those verbs that the view has.
func (v Verbs) intersect(resource schema.GroupResource, verbs []string) []string {
	var common []string
	for _, verb := range verbs {
		if slices.Contains(v[resource], verb) {
			common = append(common, verb)
		}
	}
	return common
}

// IsView returns whether this is the result of Restrict.
func (c *Compiled) IsView() bool { return c != nil && c.restriction != nil }

// GetResource returns a built-in resource, or subresource ("<resource>/<subresource>"), of a version.
func (c *Compiled) GetResource(version schema.GroupVersion, name string) (metav1.APIResource, bool) {
	listed := c.listResources(version)
	if at := slices.IndexFunc(listed, func(r metav1.APIResource) bool { return r.Name == name }); at >= 0 {
		return listed[at], true
	}
	return metav1.APIResource{}, false
}

// HasGroup returns whether a group is built-in.
func (c *Compiled) HasGroup(name string) bool { return c.hasGroup(name) }

// writeRestriction adds the restriction of a view to a hash, for the selected groups.
func (c *Compiled) writeRestriction(w io.Writer, includeGroup func(string) bool) {
	if !c.IsView() {
		return
	}
	for _, group := range c.groups {
		for _, version := range group.versions {
			for _, listed := range version.unaggregated {
				if includeGroup(group.name) {
					fmt.Fprintf(w, "+%s/%s/%s %q\n", group.name, version.name, listed.Name, listed.Verbs)
				}
			}
		}
	}
	fmt.Fprintln(w, "view")
}

func allGroups(string) bool { return true }

// View returns a handler for other API sets, which are views of the built-in resources. It shares the cache. next serves the
// versions of the core group, and every other request.
func (h *Handler) View(resolver APISetResolver, next http.Handler) *Handler {
	view := *h
	view.resolver, view.next = resolver, next
	return &view
}
