package kubeconfig

import (
	"context"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	corev1 "k8s.io/api/core/v1"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/dependencies"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/pki"
	"github.com/atoll-dev/atoll/controllers/status"
)

// target is the server that a kubeconfig points to.
type target struct {
	name        string // kind and name
	root        *operatorv1alpha1.RootShard
	url         string                       // for the user
	operatorURL string                       // for the operator: the internal proxy, which reaches workspaces of all shards
	isShard     bool                         // the target is a shard and not a proxy
	caBundle    *corev1.LocalObjectReference // further CAs of the server, or nil
}

// findTarget resolves the target of a kubeconfig whose certificate can be issued. It is nil unless the result is satisfied.
func findTarget(ctx context.Context, c apply.Cluster, kubeconfig *operatorv1alpha1.Kubeconfig) (*target, status.Result, error) {
	found, result, err := resolveTarget(ctx, c, kubeconfig)
	if err != nil || found == nil {
		return nil, result, err
	}
	if unknown := dependencies.ResolveCAs(operatorv1alpha1.ConditionReferenceValid, found.root); unknown.Type != "" {
		return nil, unknown, nil
	}
	return found, result, nil
}

// resolveTarget resolves the target and its installation. It uses the first of several references. The target is nil unless the result is
// satisfied.
func resolveTarget(ctx context.Context, c apply.Cluster, kubeconfig *operatorv1alpha1.Kubeconfig) (*target, status.Result, error) {
	const condition = operatorv1alpha1.ConditionReferenceValid
	referenceNotFound := func(format string, args ...any) (*target, status.Result, error) {
		return nil, status.Wait(condition, operatorv1alpha1.ReasonReferenceNotFound, format, args...), nil
	}
	spec, namespace := kubeconfig.Spec.Target, kubeconfig.Namespace
	switch {
	case spec.RootShardRef != nil:
		root, err := apply.Get[operatorv1alpha1.RootShard](ctx, c, namespace, spec.RootShardRef.Name)
		if err != nil {
			return nil, status.Result{}, err
		}
		if root == nil {
			return referenceNotFound("RootShard %s does not exist in namespace %s: create it, or correct target.rootShardRef", spec.RootShardRef.Name, namespace)
		}
		return validTarget(&target{
			name: "RootShard/" + root.Name, root: root, url: desired.RootShardBaseURL(root), operatorURL: desired.InternalProxyURL(root), isShard: true,
		})
	case spec.ShardRef != nil:
		shard, err := apply.Get[operatorv1alpha1.Shard](ctx, c, namespace, spec.ShardRef.Name)
		if err != nil {
			return nil, status.Result{}, err
		}
		if shard == nil {
			return referenceNotFound("Shard %s does not exist in namespace %s: create it, or correct target.shardRef", spec.ShardRef.Name, namespace)
		}
		root, result, err := findRootShard(ctx, c, "Shard "+shard.Name, namespace, shard.Spec.RootShard)
		if err != nil || root == nil {
			return nil, result, err
		}
		return validTarget(&target{
			name: "Shard/" + shard.Name, root: root, url: desired.NewShard(shard, root).BaseURL(), operatorURL: desired.InternalProxyURL(root), isShard: true,
		})
	case spec.FrontProxyRef != nil:
		front, err := apply.Get[operatorv1alpha1.FrontProxy](ctx, c, namespace, spec.FrontProxyRef.Name)
		if err != nil {
			return nil, status.Result{}, err
		}
		if front == nil {
			return referenceNotFound("FrontProxy %s does not exist in namespace %s: create it, or correct target.frontProxyRef", spec.FrontProxyRef.Name, namespace)
		}
		root, result, err := findRootShard(ctx, c, "FrontProxy "+front.Name, namespace, front.Spec.RootShard)
		if err != nil || root == nil {
			return nil, result, err
		}
		return validTarget(&target{
			name: "FrontProxy/" + front.Name, root: root, url: desired.FrontProxyURL(front, root),
			operatorURL: desired.InternalProxyURL(root), caBundle: front.Spec.CABundleSecretRef,
		})
	default:
		return nil, status.Stall(condition, operatorv1alpha1.ReasonReferenceNotFound, "target names nothing: set rootShardRef, shardRef or frontProxyRef"), nil
	}
}

// findRootShard resolves the RootShard that a target names. It is nil if the result has a type.
func findRootShard(ctx context.Context, c apply.Cluster, owner, namespace string, ref operatorv1alpha1.RootShardReference) (*operatorv1alpha1.RootShard, status.Result, error) {
	const condition, reason = operatorv1alpha1.ConditionReferenceValid, operatorv1alpha1.ReasonReferenceNotFound
	if ref.Reference == nil || ref.Reference.Name == "" {
		return nil, status.Wait(condition, reason, "%s names no RootShard: set its rootShard.ref.name", owner), nil
	}
	root, err := apply.Get[operatorv1alpha1.RootShard](ctx, c, namespace, ref.Reference.Name)
	if err == nil && root == nil {
		return nil, status.Wait(condition, reason, "RootShard %s, which %s names, does not exist in namespace %s: create it", ref.Reference.Name, owner, namespace), nil
	}
	return root, status.Result{}, err
}

func validTarget(t *target) (*target, status.Result, error) {
	return t, status.OK(operatorv1alpha1.ConditionReferenceValid, operatorv1alpha1.ReasonReferenceValid, "%s exists", t.name), nil
}

// findInstallation resolves the installation in which bindings were created. If the target does not exist, the
// certificate names it. It is nil if the installation does not exist or is being deleted.
func findInstallation(ctx context.Context, c apply.Cluster, kubeconfig *operatorv1alpha1.Kubeconfig) (*target, error) {
	found, _, err := resolveTarget(ctx, c, kubeconfig)
	if err != nil {
		return nil, err
	}
	if found == nil {
		certificate, err := apply.Get[certmanagerv1.Certificate](ctx, c, kubeconfig.Namespace, pki.KubeconfigCertificate(kubeconfig))
		if err != nil || certificate == nil {
			return nil, err
		}
		root, err := apply.Get[operatorv1alpha1.RootShard](ctx, c, kubeconfig.Namespace, certificate.Labels[operatorv1alpha1.LabelRootShard])
		if err != nil || root == nil {
			return nil, err
		}
		found = &target{root: root, operatorURL: desired.InternalProxyURL(root)}
	}
	if found.root.DeletionTimestamp != nil {
		return nil, nil
	}
	return found, nil
}
