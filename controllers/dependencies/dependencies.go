// Package dependencies observes the objects that others depend on: the RootShard of an installation, its Shards, and the CacheServer and
// the VirtualWorkspace that a spec names. A reference that does not resolve is a result, not an error.
package dependencies

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/status"
	"github.com/atoll-dev/atoll/controllers/validation"
)

// ResolveRootShard resolves the reference to an installation. The RootShard is nil if there is no installation. Unless the result is
// satisfied, nothing may be rendered from it.
func ResolveRootShard(ctx context.Context, c apply.Cluster, namespace string, ref operatorv1alpha1.RootShardReference) (*operatorv1alpha1.RootShard, status.Result, error) {
	const condition = operatorv1alpha1.ConditionRootShard
	// The schema admits an object that names no RootShard.
	if ref.Reference == nil || ref.Reference.Name == "" {
		return nil, status.Stall(condition, operatorv1alpha1.ReasonInvalidReference, "rootShard.ref.name is empty: name a RootShard of this namespace"), nil
	}
	name := ref.Reference.Name
	root, err := apply.Get[operatorv1alpha1.RootShard](ctx, c, namespace, name)
	if err != nil {
		return nil, status.Result{}, err
	}
	if root == nil || root.DeletionTimestamp != nil && !WaitsForWorkspaces(root) {
		return nil, status.Wait(condition, operatorv1alpha1.ReasonInvalidReference,
			"RootShard %s does not exist in namespace %s: create it, or correct rootShard.ref.name", name, namespace), nil
	}
	if unknown := ResolveCAs(condition, root); unknown.Type != "" {
		return root, unknown, nil
	}
	return root, status.OK(condition, operatorv1alpha1.ReasonValid, "RootShard %s exists", name), nil
}

// ResolveCAs returns a result without a type if the certificate authorities of an installation are known.
func ResolveCAs(condition string, root *operatorv1alpha1.RootShard) status.Result {
	if desired.KnowsCAs(root) {
		return status.Result{}
	}
	return status.Wait(condition, "CertificateAuthoritiesUnknown", "waiting until RootShard %s has found the keys of its certificate authorities", root.Name)
}

// WaitsForWorkspaces reports whether the deletion of a RootShard waits for the workspaces of its installation, whose servers run until
// then.
func WaitsForWorkspaces(root *operatorv1alpha1.RootShard) bool {
	return root.DeletionTimestamp != nil && controllerutil.ContainsFinalizer(root, operatorv1alpha1.FinalizerRootShard) &&
		root.Annotations[operatorv1alpha1.AnnotationForceDelete] != "true"
}

// ResolveDependencies observes the objects that a shard references. The result names the references that do not resolve; it has no type
// if all do.
func ResolveDependencies(ctx context.Context, c apply.Cluster, shard desired.Shard) (desired.Dependencies, status.Result, error) {
	out := desired.Dependencies{}
	cache, cacheResult, err := ResolveCacheServer(ctx, c, shard)
	if err != nil {
		return out, status.Result{}, err
	}
	virtualWorkspace, virtualWorkspaceResult, err := resolveVirtualWorkspace(ctx, c, shard)
	if err != nil {
		return out, status.Result{}, err
	}
	if missing := status.Join(cacheResult, virtualWorkspaceResult); missing.Type != "" {
		return out, missing, nil
	}
	out.Cache, out.VirtualWorkspace = cache, virtualWorkspace
	shards, err := ListShards(ctx, c, shard.Root())
	if err != nil {
		return out, status.Result{}, err
	}
	out.TokenKeys, err = ListTokenKeys(ctx, c, shard.Root(), shards)
	return out, status.Result{}, err
}

// ResolveCacheServer resolves the CacheServer that a shard uses. It is nil if the root shard embeds the cache.
func ResolveCacheServer(ctx context.Context, c apply.Cluster, shard desired.Shard) (*operatorv1alpha1.CacheServer, status.Result, error) {
	name, field := shard.CacheRef()
	if name == "" {
		return nil, status.Result{}, nil
	}
	cache, err := apply.Get[operatorv1alpha1.CacheServer](ctx, c, shard.Namespace(), name)
	if err != nil {
		return nil, status.Result{}, err
	}
	if cache == nil {
		return nil, NotFound("CacheServer", name, shard.Namespace(), field), nil
	}
	return cache, status.Result{}, nil
}

// resolveVirtualWorkspace resolves the VirtualWorkspace that serves instead of a shard. It is nil if the spec names none.
func resolveVirtualWorkspace(ctx context.Context, c apply.Cluster, shard desired.Shard) (*operatorv1alpha1.VirtualWorkspace, status.Result, error) {
	ref := shard.Spec().KCPVirtualWorkspace
	if ref == nil || ref.Name == "" {
		return nil, status.Result{}, nil
	}
	virtualWorkspace, err := apply.Get[operatorv1alpha1.VirtualWorkspace](ctx, c, shard.Namespace(), ref.Name)
	switch {
	case err != nil:
		return nil, status.Result{}, err
	case virtualWorkspace == nil:
		return nil, NotFound("VirtualWorkspace", ref.Name, shard.Namespace(), "kcpVirtualWorkspace"), nil
	case !targetsShard(virtualWorkspace, shard):
		return nil, status.Stall(operatorv1alpha1.ConditionSpecHonored, "InvalidReference",
			"VirtualWorkspace %s, which kcpVirtualWorkspace names, targets another shard: correct its target, or name another one", ref.Name), nil
	}
	return virtualWorkspace, status.Result{}, nil
}

// ListShards returns the names of the Shards of an installation, sorted. It leaves out Shards with an invalid name.
func ListShards(ctx context.Context, c apply.Cluster, root *operatorv1alpha1.RootShard) ([]string, error) {
	var list operatorv1alpha1.ShardList
	if err := c.List(ctx, &list, client.InNamespace(root.Namespace)); err != nil {
		return nil, err
	}
	var out []string
	for _, shard := range list.Items {
		// The schema admits a Shard that names no RootShard.
		if ref := shard.Spec.RootShard.Reference; ref != nil && ref.Name == root.Name && validation.ShardName(&shard, root).State == status.Satisfied {
			out = append(out, shard.Name)
		}
	}
	slices.Sort(out)
	return out, nil
}

// ListTokenKeys returns the keys by which service account tokens of an installation can be verified: those of the root shard, then those of
// Shards that exist. A Shard that waits for its key must not prevent the start of all other pods.
func ListTokenKeys(ctx context.Context, c apply.Cluster, root *operatorv1alpha1.RootShard, shards []string) ([]desired.TokenKey, error) {
	out := desired.TokenKeys(root, root.Name)
	for _, key := range desired.TokenKeys(root, shards...) {
		secret, err := apply.Get[corev1.Secret](ctx, c, root.Namespace, key.Secret())
		if err != nil {
			return nil, err
		}
		if secret != nil && len(secret.Data[corev1.TLSCertKey]) > 0 {
			out = append(out, key)
		}
	}
	return out, nil
}

// targetsShard reports whether a VirtualWorkspace belongs to a shard. A VirtualWorkspace with an empty target passes: its own conditions
// report that.
func targetsShard(virtualWorkspace *operatorv1alpha1.VirtualWorkspace, shard desired.Shard) bool {
	target := virtualWorkspace.Spec.Target
	if target.RootShardRef != nil {
		return shard.IsRoot() && target.RootShardRef.Name == shard.Name()
	}
	return target.ShardRef == nil || (!shard.IsRoot() && target.ShardRef.Name == shard.Name())
}

// NotFound returns the result about an object that does not exist and that a field of a spec names.
func NotFound(kind, name, namespace, field string) status.Result {
	return status.Wait(operatorv1alpha1.ConditionSpecHonored, operatorv1alpha1.ReasonReferenceNotFound,
		"%s %s, which %s names, does not exist in namespace %s: create it, or correct %s", kind, name, field, namespace, field)
}
