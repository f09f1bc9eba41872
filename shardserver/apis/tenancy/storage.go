// Package tenancy serves the group tenancy.kcp.io: Workspace, WorkspaceType and WorkspaceAuthenticationConfiguration.
// Permissions, and the consistency of types and workspaces, are checked by admission; this package validates single
// objects only.
package tenancy

import (
	"regexp"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	_ "github.com/atoll-dev/atoll/shardserver/apis/install" // registers the types in the scheme
	"github.com/atoll-dev/atoll/shardserver/apis/registry"
)

// maxNameLength is the limit of DNS labels: names are segments of paths.
const maxNameLength = 63

var (
	namePattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	// typeNamePattern has no end anchor, as in kcp: the remainder is checked by resolving the type.
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
	return append(registry.ValidateMaxLength(name, maxNameLength, path), registry.ValidatePattern(name, namePattern, path)...)
}

func validateTypeReference(ref tenancyv1alpha1.WorkspaceTypeReference, path *field.Path) field.ErrorList {
	errs := registry.ValidateRequired(string(ref.Name), path.Child("name"))
	errs = append(errs, registry.ValidatePattern(string(ref.Name), typeNamePattern, path.Child("name"))...)
	return append(errs, registry.ValidatePattern(ref.Path, pathPattern, path.Child("path"))...)
}
