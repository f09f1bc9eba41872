// Package lifecycle holds the virtual workspaces of initializers and terminators: what a workspace type's controller
// sees and may do of the logical clusters that wait for it, and for as long as they do.
//
// The two differ in little: which list of the status names them, which phase they work in, and which fields of the
// type speak of them (kind). What decides when a logical cluster moves on is not here but in package tenancy.
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

// ownerKind is what tells initializers and terminators apart.
type ownerKind struct {
	// name is that of the virtual workspace.
	name string
	// noun is what messages call the owner, and field where in the status it is listed.
	noun, field string
	// verb is what one must be allowed to do to the workspace type.
	verb string
	// groupPrefix, with the owner's name, is the group that acts in the content of logical clusters.
	groupPrefix string
	// phase is that of the logical clusters that the owner sees.
	phase corev1alpha1.LogicalClusterPhaseType
	// label returns the label that logical clusters carry while they wait for the owner.
	label func(owner string) (key, value string)
	// waitsFor tells whether a logical cluster waits for the owner now.
	waitsFor func(cluster *corev1alpha1.LogicalCluster, owner string) bool
	// list returns the remaining owners of this kind.
	list func(status *corev1alpha1.LogicalClusterStatus) []string
	// permissions are the rights that the type gives its owner inside; none means those of the creator.
	permissions func(spec *tenancyv1alpha1.WorkspaceTypeSpec) []rbacv1.PolicyRule
	// ownDiscovery tells that discovery of one logical cluster shows this API alone, not the content.
	ownDiscovery bool
}

var initializing = &ownerKind{
	name: "initializingworkspaces", noun: "initializer", field: "initializers", verb: "initialize",
	groupPrefix: authorization.InitializerGroupPrefix,
	phase:       corev1alpha1.LogicalClusterPhaseInitializing,
	label: func(owner string) (string, string) {
		return kcpcore.InitializerLabel(corev1alpha1.LogicalClusterInitializer(owner))
	},
	waitsFor: func(cluster *corev1alpha1.LogicalCluster, owner string) bool {
		return cluster.Status.Phase == corev1alpha1.LogicalClusterPhaseInitializing &&
			slices.Contains(cluster.Status.Initializers, corev1alpha1.LogicalClusterInitializer(owner))
	},
	list:        func(status *corev1alpha1.LogicalClusterStatus) []string { return toStrings(status.Initializers) },
	permissions: func(spec *tenancyv1alpha1.WorkspaceTypeSpec) []rbacv1.PolicyRule { return spec.InitializerPermissions },
}

var terminating = &ownerKind{
	name: "terminatingworkspaces", noun: "terminator", field: "terminators", verb: "terminate",
	groupPrefix: authorization.TerminatorGroupPrefix,
	phase:       corev1alpha1.LogicalClusterPhaseTerminating,
	label: func(owner string) (string, string) {
		return kcpcore.TerminatorLabel(corev1alpha1.LogicalClusterTerminator(owner))
	},
	waitsFor: func(cluster *corev1alpha1.LogicalCluster, owner string) bool {
		return cluster.DeletionTimestamp != nil && slices.Contains(cluster.Status.Terminators, corev1alpha1.LogicalClusterTerminator(owner))
	},
	list:         func(status *corev1alpha1.LogicalClusterStatus) []string { return toStrings(status.Terminators) },
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

// selector narrows a selector to the logical clusters that wait for the owner.
func (k *ownerKind) selector(owner string, wanted labels.Selector) (labels.Selector, error) {
	if wanted == nil {
		wanted = labels.Everything()
	}
	key, value := k.label(owner)
	for key, value := range map[string]string{key: value, corev1alpha1.PhaseLabelKey: string(k.phase)} {
		requirement, err := labels.NewRequirement(key, selection.Equals, []string{value})
		if err != nil {
			return nil, fmt.Errorf("selecting the logical clusters of %s %q: %w", k.noun, owner, err)
		}
		wanted = wanted.Add(*requirement)
	}
	return wanted, nil
}

// typeOf returns the workspace type that an initializer or terminator belongs to: "<cluster name>:<type name>". Those
// of the system ("system:...") belong to none.
func typeOf(owner string) (cluster logicalcluster.Name, name string, ok bool) {
	colon := strings.LastIndex(owner, ":")
	if colon <= 0 || colon == len(owner)-1 || isSystem(owner) {
		return logicalcluster.Name{}, "", false
	}
	cluster, err := logicalcluster.ParseName(owner[:colon])
	return cluster, owner[colon+1:], err == nil
}

func isSystem(owner string) bool { return strings.HasPrefix(owner, "system:") }
