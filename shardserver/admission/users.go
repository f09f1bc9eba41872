package admission

import (
	"slices"

	"k8s.io/apiserver/pkg/authentication/user"
)

// Groups whose members may do what a tenant may not. Which of them counts differs from plug-in to plug-in.
const (
	groupAdmin                       = "system:kcp:admin"
	groupLogicalClusterAdmin         = "system:kcp:logical-cluster-admin"
	groupExternalLogicalClusterAdmin = "system:kcp:external-logical-cluster-admin"
	groupWorkspaceBootstrapper       = "system:kcp:tenancy:workspace-bootstrapper"
)

// isMaster tells whether the user is privileged in the sense of most plug-ins.
func isMaster(u user.Info) bool { return inAnyGroup(u, user.SystemPrivilegedGroup) }

func inAnyGroup(u user.Info, groups ...string) bool {
	if u == nil {
		return false
	}
	return slices.ContainsFunc(u.GetGroups(), func(group string) bool { return slices.Contains(groups, group) })
}
