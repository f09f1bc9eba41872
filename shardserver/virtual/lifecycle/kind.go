// Package lifecycle holds the virtual workspaces of initializers and terminators, in which the controller of a workspace
// type reads and writes the logical clusters that wait for it, while they do.
//
// The two differ only in the list in the status, the phase, and the fields of the workspace type (ownerKind). The package
// must not change phases: that is for package tenancy.
package lifecycle

import (
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	kcpcore "github.com/atoll-dev/atoll/shardserver/apis/core"
	"github.com/atoll-dev/atoll/shardserver/authorization"
)

// ownerKind holds the differences between initializers and terminators.
type ownerKind struct {
	// name is the name of the virtual workspace.
	name string
	// noun names the owner in messages, and field is the status field that lists it.
	noun, field string
	// verb is the required verb on the workspace type.
	verb string
	// groupPrefix plus the owner is the group of callers in the content of logical clusters.
	groupPrefix string
	// phase is the phase of the logical clusters that the owner sees.
	phase corev1alpha1.LogicalClusterPhaseType
	// label returns the label of logical clusters that wait for the owner.
	label func(owner string) (key, value string)
	// isPending reports whether a logical cluster waits for the owner.
	isPending func(cluster *corev1alpha1.LogicalCluster, owner string) bool
	// listOwners returns the remaining owners of this kind.
	listOwners func(status *corev1alpha1.LogicalClusterStatus) []string
	// permissions returns the policy rules that the type gives its owner; none means those of the creator.
	permissions func(spec *tenancyv1alpha1.WorkspaceTypeSpec) []rbacv1.PolicyRule
	// ownDiscovery means that discovery of one logical cluster shows this API only, not the content.
	ownDiscovery bool
}

var initializing = &ownerKind{
	name: "initializingworkspaces", noun: "initializer", field: "initializers", verb: "initialize",
	groupPrefix: authorization.InitializerGroupPrefix,
	phase:       corev1alpha1.LogicalClusterPhaseInitializing,
	label: func(owner string) (string, string) {
		return kcpcore.InitializerLabel(corev1alpha1.LogicalClusterInitializer(owner))
	},
	isPending: func(cluster *corev1alpha1.LogicalCluster, owner string) bool {
		return cluster.Status.Phase == corev1alpha1.LogicalClusterPhaseInitializing &&
			slices.Contains(cluster.Status.Initializers, corev1alpha1.LogicalClusterInitializer(owner))
	},
	listOwners:  func(status *corev1alpha1.LogicalClusterStatus) []string { return toStrings(status.Initializers) },
	permissions: func(spec *tenancyv1alpha1.WorkspaceTypeSpec) []rbacv1.PolicyRule { return spec.InitializerPermissions },
}

var terminating = &ownerKind{
	name: "terminatingworkspaces", noun: "terminator", field: "terminators", verb: "terminate",
	groupPrefix: authorization.TerminatorGroupPrefix,
	phase:       corev1alpha1.LogicalClusterPhaseTerminating,
	label: func(owner string) (string, string) {
		return kcpcore.TerminatorLabel(corev1alpha1.LogicalClusterTerminator(owner))
	},
	isPending: func(cluster *corev1alpha1.LogicalCluster, owner string) bool {
		return cluster.DeletionTimestamp != nil && slices.Contains(cluster.Status.Terminators, corev1alpha1.LogicalClusterTerminator(owner))
	},
	listOwners:   func(status *corev1alpha1.LogicalClusterStatus) []string { return toStrings(status.Terminators) },
	permissions:  func(spec *tenancyv1alpha1.WorkspaceTypeSpec) []rbacv1.PolicyRule { return spec.TerminatorPermissions },
	ownDiscovery: true,
}

func toStrings[S ~string](list []S) []string {
	out := make([]string, len(list))
	for i, item := range list {
		out[i] = string(item)
	}
	return out
}

// restrictSelector restricts a selector to the logical clusters that wait for the owner.
func (k *ownerKind) restrictSelector(owner string, base labels.Selector) (labels.Selector, error) {
	if base == nil {
		base = labels.Everything()
	}
	key, value := k.label(owner)
	for key, value := range map[string]string{key: value, corev1alpha1.PhaseLabelKey: string(k.phase)} {
		requirement, err := labels.NewRequirement(key, selection.Equals, []string{value})
		if err != nil {
			return nil, fmt.Errorf("selecting the logical clusters of %s %q: %w", k.noun, owner, err)
		}
		base = base.Add(*requirement)
	}
	return base, nil
}

// parseWorkspaceType returns the workspace type of an initializer or terminator "<cluster name>:<type name>". System ones
// ("system:...") have none.
func parseWorkspaceType(owner string) (cluster logicalcluster.Name, name string, ok bool) {
	colon := strings.LastIndex(owner, ":")
	if colon <= 0 || colon == len(owner)-1 || isSystem(owner) {
		return logicalcluster.Name{}, "", false
	}
	cluster, err := logicalcluster.ParseName(owner[:colon])
	return cluster, owner[colon+1:], err == nil
}

func isSystem(owner string) bool { return strings.HasPrefix(owner, "system:") }
