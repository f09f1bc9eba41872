package source

import (
	"context"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// resource is the discovery information about a resource.
type resource struct {
	group, kind, plural, singular string
	namespaced                    bool
	shortNames, categories        []string
	// versions are in the order of discovery; the first is the preferred version, if that has the resource.
	versions []version
}

type version struct {
	name          string
	status, scale bool
}

// find finds a kind in all versions of a group. It returns the names of the preferred version.
func find(ctx context.Context, d Discovery, group, kind string) (*resource, error) {
	groups, err := d.ServerGroupsWithContext(ctx)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(groups.Groups, func(candidate metav1.APIGroup) bool { return candidate.Name == group })
	if at < 0 {
		return nil, ErrNotServed
	}
	var found *resource
	for _, groupVersion := range preferredFirst(groups.Groups[at]) {
		list, err := d.ServerResourcesForGroupVersionWithContext(ctx, groupVersion.GroupVersion)
		if apierrors.IsNotFound(err) { // the version was removed after the groups were listed
			continue
		}
		if err != nil {
			return nil, err
		}
		found = found.with(list.APIResources, group, groupVersion.Version, kind)
	}
	if found == nil {
		return nil, ErrNotServed
	}
	return found, nil
}

func preferredFirst(group metav1.APIGroup) []metav1.GroupVersionForDiscovery {
	versions := slices.Clone(group.Versions)
	at := slices.Index(versions, group.PreferredVersion)
	if at > 0 {
		versions = slices.Insert(slices.Delete(versions, at, at+1), 0, group.PreferredVersion)
	}
	return versions
}

// with returns the resource with an additional version, if that version has the kind; r may be nil.
func (r *resource) with(resources []metav1.APIResource, group, name, kind string) *resource {
	at := slices.IndexFunc(resources, func(candidate metav1.APIResource) bool {
		return candidate.Kind == kind && !strings.Contains(candidate.Name, "/") && (r == nil || candidate.Name == r.plural)
	})
	if at < 0 {
		return r
	}
	main := resources[at]
	if r == nil {
		r = &resource{
			group: group, kind: kind, plural: main.Name, singular: main.SingularName, namespaced: main.Namespaced,
			shortNames: main.ShortNames, categories: main.Categories,
		}
		if r.singular == "" {
			r.singular = strings.ToLower(kind)
		}
	}
	has := func(subresource string) bool {
		return slices.ContainsFunc(resources, func(candidate metav1.APIResource) bool { return candidate.Name == main.Name+"/"+subresource })
	}
	r.versions = append(r.versions, version{name: name, status: has("status"), scale: has("scale")})
	return r
}
