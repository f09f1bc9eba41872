// Package related locates the objects that belong to an object of a published resource, such as the Secret with its credentials: their
// location on the side that owns their content (the origin), and the location of their copies on the other side.
package related

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
)

// maxPairs bounds the objects of one entry. Consumers control the length of lists in their objects, and every pair costs requests each
// time the primary object is synced.
const maxPairs = 1000

// Input is the input of Locate.
type Input struct {
	// Workspace and Service are the primary object on each side.
	Workspace, Service *unstructured.Unstructured
	// ClusterName is the name of the logical cluster, ClusterPath the path of the workspace if the publication enables workspace paths.
	ClusterName, ClusterPath string
	// OriginClusterScoped and CopyClusterScoped mean that the related resource has no namespaces on that side.
	OriginClusterScoped, CopyClusterScoped bool
	// List lists related objects on the side of the origin; the namespace is empty if they are cluster-scoped.
	List func(ctx context.Context, namespace string, selector labels.Selector) ([]unstructured.Unstructured, error)
	// ListNamespaces lists the namespaces of that side.
	ListNamespaces func(ctx context.Context, selector labels.Selector) ([]unstructured.Unstructured, error)
}

// Pair is a related object and its copy.
type Pair struct {
	Origin, Copy types.NamespacedName
}

// Locate returns the objects of an entry, sorted by namespace and name of the origin. The located objects may not exist. No two pairs
// have the same origin or the same copy.
func Locate(ctx context.Context, spec syncagentv1alpha1.RelatedResourceSpec, in Input) ([]Pair, error) {
	pairs, err := newLocator(spec, in).locate(ctx)
	if err != nil {
		return nil, fmt.Errorf("related resource %q: %w", spec.Identifier, err)
	}
	return pairs, nil
}

func (l *locator) locate(ctx context.Context) ([]Pair, error) {
	if l.origin.primary == nil || l.copy.primary == nil {
		return nil, errors.New("the primary object must be known on both sides")
	}
	namespaces, err := l.namespaces(ctx)
	if err != nil {
		return nil, err
	}
	var pairs []Pair
	for _, namespace := range namespaces {
		names, err := l.objects(ctx, namespace.origin)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			pairs = append(pairs, Pair{
				Origin: types.NamespacedName{Namespace: namespace.origin, Name: name.origin},
				Copy:   types.NamespacedName{Namespace: namespace.copy, Name: name.copy},
			})
		}
		if len(pairs) > maxPairs {
			return nil, fmt.Errorf("more than %d objects", maxPairs)
		}
	}
	slices.SortFunc(pairs, func(a, b Pair) int { return cmp.Or(compare(a.Origin, b.Origin), compare(a.Copy, b.Copy)) })
	pairs = slices.Compact(pairs)
	return pairs, checkUnique(pairs)
}

func compare(a, b types.NamespacedName) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

// checkUnique returns an error if two objects have one copy, or one object has two copies: syncs would overwrite them in turn.
func checkUnique(pairs []Pair) error {
	origins, copies := map[types.NamespacedName]types.NamespacedName{}, map[types.NamespacedName]types.NamespacedName{}
	for _, pair := range pairs {
		if other, found := origins[pair.Origin]; found {
			return fmt.Errorf("%s would have two copies, %s and %s", pair.Origin, other, pair.Copy)
		}
		if other, found := copies[pair.Copy]; found {
			return fmt.Errorf("%s would be the copy of both %s and %s", pair.Copy, other, pair.Origin)
		}
		origins[pair.Origin], copies[pair.Copy] = pair.Copy, pair.Origin
	}
	return nil
}

// namespaces returns the namespaces to search. The name is empty on a side where the resource is cluster-scoped.
func (l *locator) namespaces(ctx context.Context) ([]names, error) {
	if l.in.OriginClusterScoped && l.in.CopyClusterScoped {
		return []names{{}}, nil
	}
	located, err := l.locateNamespaces(ctx)
	if err != nil {
		return nil, err
	}
	result := make([]names, 0, len(located))
	for _, n := range located {
		if l.in.OriginClusterScoped {
			n.origin = ""
		}
		if l.in.CopyClusterScoped {
			n.copy = ""
		}
		result = append(result, n)
	}
	return result, nil
}

func (l *locator) locateNamespaces(ctx context.Context) ([]names, error) {
	if spec := l.spec.Object.Namespace; spec != nil {
		return l.find(ctx, query{
			spec: *spec, field: "object.namespace", validate: func(string) func(string) []string { return validation.IsDNS1123Label },
			list: l.in.ListNamespaces,
		})
	}
	result := names{origin: l.origin.primary.GetNamespace(), copy: l.copy.primary.GetNamespace()}
	for _, s := range []struct {
		side
		namespace string
		unused    bool
	}{{l.origin, result.origin, l.in.OriginClusterScoped}, {l.copy, result.copy, l.in.CopyClusterScoped}} {
		if s.namespace == "" && !s.unused {
			return nil, fmt.Errorf("object.namespace must be set: the primary object has no namespace on the %s side", s.name)
		}
	}
	return []names{result}, nil
}

func (l *locator) objects(ctx context.Context, namespace string) ([]names, error) {
	return l.find(ctx, query{
		spec: l.spec.Object.RelatedResourceObjectSpec, field: "object", objects: true, validate: nameValidation,
		list: func(ctx context.Context, selector labels.Selector) ([]unstructured.Unstructured, error) {
			return l.in.List(ctx, namespace, selector)
		},
	})
}

// nameValidation returns the validation of names in a group: names of roles and their bindings do not have to be DNS names.
func nameValidation(group string) func(string) []string {
	if group == "rbac.authorization.k8s.io" {
		return content.IsPathSegmentName
	}
	return validation.IsDNS1123Subdomain
}
