package tenancy

import (
	"encoding/json"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
)

// creator reads who made a workspace from its owner annotation, or returns nil if nobody is named.
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

// trimOwner reduces the owner annotation to the name of the user: groups and extra were needed to make the workspace,
// and are nobody's business afterwards. An annotation that cannot be read is left alone.
func trimOwner(annotations map[string]string) {
	info, err := creator(annotations)
	if err != nil || info == nil {
		return
	}
	trimmed, err := json.Marshal(map[string]string{"username": info.Username})
	if err != nil {
		return
	}
	annotations[tenancyv1alpha1.ExperimentalWorkspaceOwnerAnnotationKey] = string(trimmed)
}
