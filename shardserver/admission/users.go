package admission

import (
	"slices"

	"k8s.io/apiserver/pkg/authentication/user"
)

// Groups whose members are exempt from rules for tenants. Which of them apply differs between plug-ins.
const (
	groupAdmin                       = "system:kcp:admin"
	groupLogicalClusterAdmin         = "system:kcp:logical-cluster-admin"
	groupExternalLogicalClusterAdmin = "system:kcp:external-logical-cluster-admin"
	groupWorkspaceBootstrapper       = "system:kcp:tenancy:workspace-bootstrapper"
)

// isMaster reports whether the user is privileged for most plug-ins.
func isMaster(u user.Info) bool { return inAnyGroup(u, user.SystemPrivilegedGroup) }

func inAnyGroup(u user.Info, groups ...string) bool {
	if u == nil {
		return false
	}
	return slices.ContainsFunc(u.GetGroups(), func(group string) bool { return slices.Contains(groups, group) })
}
