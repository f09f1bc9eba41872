// Package rbac serves the group rbac.authorization.k8s.io: the stock registries, with escalation checks that include
// the policy of system:admin in addition to that of the request's logical cluster.
//
// It must neither authorize requests (package authorization) nor write policies (package bootstrap).
package rbac

import (
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/rbac"
	clusterrolepolicy "k8s.io/kubernetes/pkg/registry/rbac/clusterrole/policybased"
	clusterrolestorage "k8s.io/kubernetes/pkg/registry/rbac/clusterrole/storage"
	clusterrolebindingpolicy "k8s.io/kubernetes/pkg/registry/rbac/clusterrolebinding/policybased"
	clusterrolebindingstorage "k8s.io/kubernetes/pkg/registry/rbac/clusterrolebinding/storage"
	rolepolicy "k8s.io/kubernetes/pkg/registry/rbac/role/policybased"
	rolestorage "k8s.io/kubernetes/pkg/registry/rbac/role/storage"
	rolebindingpolicy "k8s.io/kubernetes/pkg/registry/rbac/rolebinding/policybased"
	rolebindingstorage "k8s.io/kubernetes/pkg/registry/rbac/rolebinding/storage"
	"k8s.io/kubernetes/pkg/registry/rbac/validation"
)

// NewStorage returns the group. The authorizer authorizes the verbs `escalate` and `bind`; the resolver returns the
// rules of a user, and of the role of a binding, in the logical cluster of the request.
func NewStorage(getter generic.RESTOptionsGetter, authorizer authorizer.UnconditionalAuthorizer, resolver validation.AuthorizationRuleResolver) (genericapiserver.APIGroupInfo, error) {
	roleStore, err := rolestorage.NewREST(getter)
	if err != nil {
		return genericapiserver.APIGroupInfo{}, fmt.Errorf("creating storage of roles: %w", err)
	}
	roleBindings, err := rolebindingstorage.NewREST(getter)
	if err != nil {
		return genericapiserver.APIGroupInfo{}, fmt.Errorf("creating storage of rolebindings: %w", err)
	}
	clusterRoleStore, err := clusterrolestorage.NewREST(getter)
	if err != nil {
		return genericapiserver.APIGroupInfo{}, fmt.Errorf("creating storage of clusterroles: %w", err)
	}
	clusterRoleBindings, err := clusterrolebindingstorage.NewREST(getter)
	if err != nil {
		return genericapiserver.APIGroupInfo{}, fmt.Errorf("creating storage of clusterrolebindings: %w", err)
	}
	bounded := boundedResolver{resolver, MaxCombinations}
	info := genericapiserver.NewDefaultAPIGroupInfo(rbac.GroupName, legacyscheme.Scheme, legacyscheme.ParameterCodec, legacyscheme.Codecs)
	info.VersionedResourcesStorageMap[rbacv1.SchemeGroupVersion.Version] = map[string]rest.Storage{
		"roles":               roles{rolepolicy.NewStorage(roleStore, authorizer, resolver), MaxCombinations},
		"rolebindings":        rolebindingpolicy.NewStorage(roleBindings, authorizer, bounded),
		"clusterroles":        clusterRoles{clusterrolepolicy.NewStorage(clusterRoleStore, authorizer, resolver), MaxCombinations},
		"clusterrolebindings": clusterrolebindingpolicy.NewStorage(clusterRoleBindings, authorizer, bounded),
	}
	return info, nil
}
