package tenancy

import (
	"encoding/json"
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/authorization"
)

// creator returns the creator of a workspace from its owner annotation, or nil if there is none.
func creator(annotations map[string]string) (*authenticationv1.UserInfo, error) {
	text, ok := annotations[tenancyv1alpha1.ExperimentalWorkspaceOwnerAnnotationKey]
	if !ok {
		return nil, nil
	}
	info := &authenticationv1.UserInfo{}
	if err := json.Unmarshal([]byte(text), info); err != nil {
		return nil, fmt.Errorf("annotation %s: %w", tenancyv1alpha1.ExperimentalWorkspaceOwnerAnnotationKey, err)
	}
	return info, nil
}

// adminUserName returns the user name of the creator of a workspace inside of it, or "". A service account belongs to
// another logical cluster, and tenants may create one of the same name in the new one, so its global name is used. A
// service account without a known origin has none.
func adminUserName(createdBy *authenticationv1.UserInfo) string {
	if createdBy == nil {
		return ""
	}
	namespace, name, err := serviceaccount.SplitUsername(createdBy.Username)
	if err != nil {
		return createdBy.Username
	}
	origin := createdBy.Extra[authorization.ClusterNameExtraKey]
	if len(origin) != 1 {
		return ""
	}
	return authorization.ForeignServiceAccountPrefix + strings.Join([]string{origin[0], namespace, name}, ":")
}
