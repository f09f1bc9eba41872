package shardbase

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/status"
)

// OfShard observes what a shard refers to. A result that is not fine names the first reference that leads nowhere.
func OfShard(ctx context.Context, c apply.Cluster, shard desired.Shard) (desired.Dependencies, status.Result, error) {
	out := desired.Dependencies{}
	cache, result, err := Cache(ctx, c, shard)
	if err != nil || result.State != status.Satisfied {
		return out, result, err
	}
	out.Cache = cache
	if ref := shard.Spec().KCPVirtualWorkspace; ref != nil && ref.Name != "" {
		out.VirtualWorkspace, err = apply.Get[operatorv1alpha1.VirtualWorkspace](ctx, c, shard.Namespace(), ref.Name)
		if err != nil {
			return out, status.Result{}, err
		}
		if out.VirtualWorkspace == nil {
			return out, NotFound("VirtualWorkspace", ref.Name, shard.Namespace(), "kcpVirtualWorkspace"), nil
		}
		if !targets(out.VirtualWorkspace, shard) {
			return out, status.Stall(operatorv1alpha1.ConditionSpecHonored, "InvalidReference",
				"VirtualWorkspace %s, which kcpVirtualWorkspace names, stands beside another shard: correct its target, or name another one", ref.Name), nil
		}
	}
	shards, err := Shards(ctx, c, shard.Root())
	if err != nil {
		return out, status.Result{}, err
	}
	out.Signers, err = Signers(ctx, c, shard.Root(), shards)
	return out, status.Result{}, err
}

// Cache is the CacheServer that a shard uses, or nil where the root shard holds the cache.
func Cache(ctx context.Context, c apply.Cluster, shard desired.Shard) (*operatorv1alpha1.CacheServer, status.Result, error) {
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

// Shards are the names of the Shards of an installation, sorted.
func Shards(ctx context.Context, c apply.Cluster, root *operatorv1alpha1.RootShard) ([]string, error) {
	var list operatorv1alpha1.ShardList
	if err := c.List(ctx, &list, client.InNamespace(root.Namespace)); err != nil {
		return nil, err
	}
	var out []string
	for _, shard := range list.Items {
		// The schema admits a Shard that names no RootShard.
		if ref := shard.Spec.RootShard.Reference; ref != nil && ref.Name == root.Name && ValidateShardName(&shard, root).State == status.Satisfied {
			out = append(out, shard.Name)
		}
	}
	slices.Sort(out)
	return out, nil
}

// Signers are the shards of an installation whose tokens of service accounts can be verified: the root shard, then those
// Shards whose key is there. One that waits for its key must not keep the pods of all others from starting.
func Signers(ctx context.Context, c apply.Cluster, root *operatorv1alpha1.RootShard, shards []string) ([]string, error) {
	out := []string{root.Name}
	for _, name := range shards {
		key, err := apply.Get[corev1.Secret](ctx, c, root.Namespace, name+"-service-account")
		if err != nil {
			return nil, err
		}
		if key != nil && len(key.Data[corev1.TLSCertKey]) > 0 {
			out = append(out, name)
		}
	}
	return out, nil
}

// targets says whether a server of virtual workspaces stands beside a shard. One whose target cannot be told is not judged
// here: its own conditions say what is wrong with it.
func targets(virtualWorkspace *operatorv1alpha1.VirtualWorkspace, shard desired.Shard) bool {
	target := virtualWorkspace.Spec.Target
	if target.RootShardRef != nil {
		return shard.IsRoot() && target.RootShardRef.Name == shard.Name()
	}
	return target.ShardRef == nil || (!shard.IsRoot() && target.ShardRef.Name == shard.Name())
}

// NotFound is the result about an object that a field of a spec names and that is not there.
func NotFound(kind, name, namespace, field string) status.Result {
	return status.Wait(operatorv1alpha1.ConditionSpecHonored, operatorv1alpha1.ReasonReferenceNotFound,
		"%s %s, which %s names, does not exist in namespace %s: create it, or correct %s", kind, name, field, namespace, field)
}
