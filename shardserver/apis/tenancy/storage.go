// Package tenancy serves the group tenancy.kcp.io: Workspace, WorkspaceType and WorkspaceAuthenticationConfiguration.
// Who may write what, and whether types and workspaces fit together, is decided above, by admission; here is only what
// the shapes of the kinds demand.
package tenancy

import (
	"regexp"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	_ "github.com/atoll-dev/atoll/shardserver/apis/install" // the stores need the types in the scheme
	"github.com/atoll-dev/atoll/shardserver/apis/registry"
)

// maxNameLength is that of a DNS label: names become segments of paths.
const maxNameLength = 63

var (
	namePattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	// typeNamePattern is not anchored at its end, in the reference neither: what follows is found out by looking the
	// type up.
	typeNamePattern = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,61}[a-z0-9])?`)
	pathPattern     = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(:[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
)

// Storages returns the stores of tenancy.kcp.io/v1alpha1 by resource: "workspaces", "workspaces/status",
// "workspacetypes", "workspacetypes/status" and "workspaceauthenticationconfigurations".
func Storages(getter generic.RESTOptionsGetter) (map[string]rest.Storage, error) {
	storages := map[string]rest.Storage{}
	if err := registry.NewStores(workspaces, legacyscheme.Scheme, getter, storages); err != nil {
		return nil, err
	}
	if err := registry.NewStores(workspaceTypes, legacyscheme.Scheme, getter, storages); err != nil {
		return nil, err
	}
	if err := registry.NewStores(workspaceAuthenticationConfigurations, legacyscheme.Scheme, getter, storages); err != nil {
		return nil, err
	}
	return storages, nil
}

func validateName(name string, path *field.Path) field.ErrorList {
	return append(registry.MaxLength(name, maxNameLength, path), registry.Pattern(name, namePattern, path)...)
}

func validateTypeReference(ref tenancyv1alpha1.WorkspaceTypeReference, path *field.Path) field.ErrorList {
	errs := registry.Required(string(ref.Name), path.Child("name"))
	errs = append(errs, registry.Pattern(string(ref.Name), typeNamePattern, path.Child("name"))...)
	return append(errs, registry.Pattern(ref.Path, pathPattern, path.Child("path"))...)
}
