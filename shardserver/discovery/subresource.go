package discovery

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/internal/subresources"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// Subresource is a custom subresource of a definition, which an export defines and its backend serves.
type Subresource struct {
	Name, Kind string
	// Versions has the verbs by version, ordered by version. It has only versions with verbs.
	Versions []SubresourceVersion
}

// SubresourceVersion has the verbs of a custom subresource in one version.
type SubresourceVersion struct {
	Name  string
	Verbs []string
}

// Schemas returns schemas, as *apiindex.Resolver does.
type Schemas interface {
	GetSchema(ctx context.Context, cluster logicalcluster.Name, name string) (*apisv1alpha1.APIResourceSchema, error)
}

// SubresourcesOf returns the custom subresources of a resource of an export, ordered by name. verbs returns the verbs of one in a version;
// those without any, and those without a schema, are left out.
func SubresourcesOf(ctx context.Context, schemas Schemas, export *apisv1alpha2.APIExport, resource schema.GroupResource,
	verbs func(entry *apisv1alpha2.ResourceSchema, version string) []string,
) ([]Subresource, error) {
	var all []Subresource
	for _, entry := range subresources.List(export, resource) {
		described, err := schemas.GetSchema(ctx, logicalcluster.Of(export), entry.Schema)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading APIResourceSchema %q: %w", entry.Schema, err)
		}
		_, name := subresources.Split(*entry)
		found := Subresource{Name: name, Kind: described.Spec.Names.Kind}
		for _, version := range described.Spec.Versions {
			if served := verbs(entry, version.Name); version.Served && len(served) > 0 {
				found.Versions = append(found.Versions, SubresourceVersion{version.Name, served})
			}
		}
		slices.SortFunc(found.Versions, func(a, b SubresourceVersion) int { return strings.Compare(a.Name, b.Name) })
		if len(found.Versions) > 0 {
			all = append(all, found)
		}
	}
	slices.SortFunc(all, func(a, b Subresource) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// customSubresources returns the custom subresources of a definition in a version.
func (d Definition) customSubresources(gv schema.GroupVersion) []apidiscoveryv2.APISubresourceDiscovery {
	var all []apidiscoveryv2.APISubresourceDiscovery
	for _, custom := range d.Subresources {
		for _, version := range custom.Versions {
			if version.Name == gv.Version {
				all = append(all, apidiscoveryv2.APISubresourceDiscovery{
					Subresource: custom.Name, Verbs: version.Verbs,
					ResponseKind: &metav1.GroupVersionKind{Group: gv.Group, Version: gv.Version, Kind: custom.Kind},
				})
			}
		}
	}
	return all
}
