package kubeconfig

import (
	"slices"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/status"
)

// ignoredFields lists the fields of a Kubeconfig that have no effect. argoCDNamespace is the namespace of Argo CD in the operator's
// configuration.
func ignoredFields(k *operatorv1alpha1.Kubeconfig, argoCDNamespace string) []status.IgnoredField {
	var out []status.IgnoredField
	target := k.Spec.Target
	add := func(set bool, field, winner string) {
		if set {
			out = append(out, status.IgnoredField{Field: "target." + field, Advice: winner + " is set, too, and takes precedence; remove one of them"})
		}
	}
	add(target.RootShardRef != nil && target.ShardRef != nil, "shardRef", "rootShardRef")
	add(target.RootShardRef != nil && target.FrontProxyRef != nil, "frontProxyRef", "rootShardRef")
	add(target.RootShardRef == nil && target.ShardRef != nil && target.FrontProxyRef != nil, "frontProxyRef", "shardRef")
	throughProxy := target.FrontProxyRef != nil && target.RootShardRef == nil && target.ShardRef == nil
	if throughProxy && slices.Contains(k.Spec.Groups, status.SystemMasters) {
		out = append(out, status.IgnoredField{
			Field:  "groups",
			Advice: "no user is in " + status.SystemMasters + " through a front proxy; target the RootShard, or bind a role with authorization",
		})
	}
	if k.Spec.Authorization != nil && k.Spec.TargetWorkspace != "" && k.Spec.Authorization.ClusterRoleBindings.Cluster != "" {
		out = append(out, status.IgnoredField{Field: "authorization.clusterRoleBindings.cluster", Advice: "targetWorkspace is set, too, and takes precedence; remove this one"})
	}
	if k.Spec.ArgoCD != nil && argoCDNamespace == "" {
		out = append(out, status.IgnoredField{Field: "argoCD", Advice: "the operator has no namespace of Argo CD: start it with --argocd-namespace"})
	}
	return out
}
