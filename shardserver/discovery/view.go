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

// Verbs are what a view offers of each resource and subresource ("<resource>/<subresource>").
type Verbs map[schema.GroupResource][]string

// Only returns what is compiled in as a view shows it, such as that of a virtual workspace: the given resources and
// subresources, and of their verbs those given.
func (c *Compiled) Only(offered Verbs) *Compiled {
	view := &Compiled{only: offered}
	for _, from := range c.groups {
		shown := group{name: from.name}
		for _, version := range from.versions {
			if kept := offered.of(from.name, version); len(kept.listed) > 0 {
				shown.versions = append(shown.versions, kept)
			}
		}
		if len(shown.versions) > 0 {
			view.groups = append(view.groups, shown)
			view.addResources(shown)
		}
	}
	return view
}

// of returns what a view shows of a version of a group.
func (v Verbs) of(group string, from groupVersion) groupVersion {
	kept := groupVersion{name: from.name}
	for _, resource := range from.listed {
		resource.Verbs = v.common(schema.GroupResource{Group: group, Resource: resource.Name}, resource.Verbs)
		if len(resource.Verbs) > 0 {
			kept.listed = append(kept.listed, resource)
		}
	}
	for _, resource := range from.aggregated {
		var offered []apidiscoveryv2.APISubresourceDiscovery
		for _, sub := range resource.Subresources {
			sub.Verbs = v.common(schema.GroupResource{Group: group, Resource: resource.Resource + "/" + sub.Subresource}, sub.Verbs)
			if len(sub.Verbs) > 0 {
				offered = append(offered, sub)
			}
		}
		resource.Verbs, resource.Subresources = v.common(schema.GroupResource{Group: group, Resource: resource.Resource}, resource.Verbs), offered
		if len(resource.Verbs) > 0 {
			kept.aggregated = append(kept.aggregated, resource)
		}
	}
	return kept
}

// common returns those of the verbs that are offered.
func (v Verbs) common(resource schema.GroupResource, verbs []string) []string {
	var common []string
	for _, verb := range verbs {
		if slices.Contains(v[resource], verb) {
			common = append(common, verb)
		}
	}
	return common
}

// IsView tells whether this is a selection (Only) of what is compiled in.
func (c *Compiled) IsView() bool { return c != nil && c.only != nil }

// Listed returns a resource, or subresource ("<resource>/<subresource>"), of a version that is compiled in.
func (c *Compiled) Listed(version schema.GroupVersion, name string) (metav1.APIResource, bool) {
	listed := c.listed(version)
	if at := slices.IndexFunc(listed, func(r metav1.APIResource) bool { return r.Name == name }); at >= 0 {
		return listed[at], true
	}
	return metav1.APIResource{}, false
}

// HasGroup tells whether anything of a group is compiled in.
func (c *Compiled) HasGroup(name string) bool { return c.hasGroup(name) }

// writeOnly adds what a view shows of a group, or of all, to a hash.
func (c *Compiled) writeOnly(w io.Writer, ofGroup func(string) bool) {
	if !c.IsView() {
		return
	}
	for _, group := range c.groups {
		for _, version := range group.versions {
			for _, listed := range version.listed {
				if ofGroup(group.name) {
					fmt.Fprintf(w, "+%s/%s/%s %q\n", group.name, version.name, listed.Name, listed.Verbs)
				}
			}
		}
	}
	fmt.Fprintln(w, "view")
}

func everyGroup(string) bool { return true }

// View returns a handler like this one of other API sets, which are views on what this one serves. Both keep documents
// together. next serves the versions of the core group, and every other request.
func (h *Handler) View(sets Finder, next http.Handler) *Handler {
	view := *h
	view.sets, view.next = sets, next
	return &view
}
