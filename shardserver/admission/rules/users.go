package rules

import (
	"slices"

	"k8s.io/apiserver/pkg/authentication/user"
)

// Groups whose members are exempt from rules for tenants. Which of them apply differs between plug-ins.
const (
	GroupAdmin                       = "system:kcp:admin"
	GroupLogicalClusterAdmin         = "system:kcp:logical-cluster-admin"
	GroupExternalLogicalClusterAdmin = "system:kcp:external-logical-cluster-admin"
	GroupWorkspaceBootstrapper       = "system:kcp:tenancy:workspace-bootstrapper"
)

// LogicalClusterManagers are the groups that may change the phase of logical clusters.
var LogicalClusterManagers = []string{
	user.SystemPrivilegedGroup,
	GroupLogicalClusterAdmin,
	GroupExternalLogicalClusterAdmin,
	GroupWorkspaceBootstrapper,
}

// IsMaster reports whether the user is privileged for most plug-ins.
func IsMaster(u user.Info) bool { return InAnyGroup(u, user.SystemPrivilegedGroup) }

// InAnyGroup reports whether the user is a member of one of the groups.
func InAnyGroup(u user.Info, groups ...string) bool {
	if u == nil {
		return false
	}
	return slices.ContainsFunc(u.GetGroups(), func(group string) bool { return slices.Contains(groups, group) })
}
