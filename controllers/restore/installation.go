package restore

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/dependencies"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/etcd"
)

// installation is the installation of a RootShard, of which a Restore fills all shards before their first start, or one.
type installation struct {
	shards []shard // that are restored, the root shard first
	all    []shard
	// started is what shows that it has started, unsupported why it cannot be restored; or "".
	started, unsupported string
}

// shard is the RootShard or a Shard.
type shard struct {
	desired.Shard
	usage  etcd.Usage
	object *operatorv1alpha1.Shard // nil for the root shard
}

func (s shard) isManaged() bool { return etcd.IsManaged(s.Spec().Etcd) }

// prefix is that of the keys of the shard.
func (s shard) prefix() string { return s.usage.Locations[0].Prefix }

func (i *installation) names() []string {
	var out []string
	for _, shard := range i.shards {
		out = append(out, shard.Name())
	}
	return out
}

// observeInstallation reads all shards, or the one that is named.
func observeInstallation(ctx context.Context, cluster apply.Cluster, root *operatorv1alpha1.RootShard, only *operatorv1alpha1.RestoreShard) (*installation, error) {
	out := &installation{shards: []shard{{desired.NewRootShard(root), etcd.RootShardUsage(root), nil}}}
	names, err := dependencies.ListShards(ctx, cluster, root)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		object, err := apply.Get[operatorv1alpha1.Shard](ctx, cluster, root.Namespace, name)
		if err != nil {
			return nil, err
		}
		if object != nil {
			out.shards = append(out.shards, shard{desired.NewShard(object, root), etcd.ShardUsage(object), object})
		}
	}
	out.all = out.shards
	if only != nil {
		out.shards = slices.DeleteFunc(slices.Clone(out.shards), func(s shard) bool { return s.IsRoot() || s.Name() != only.Name })
	}
	for _, shard := range out.shards {
		if err := out.observe(ctx, cluster, shard); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// observe sets why a shard cannot be restored.
func (i *installation) observe(ctx context.Context, cluster apply.Cluster, shard shard) error {
	deployment, err := apply.Get[appsv1.Deployment](ctx, cluster, shard.Namespace(), shard.Server())
	if err != nil {
		return err
	}
	if deployment != nil {
		i.started = fmt.Sprintf("shard %s has started: Deployment %s exists", shard.Name(), deployment.Name)
	}
	if !shard.isManaged() {
		i.unsupported = fmt.Sprintf("shard %s has an etcd of its own, which a Restore cannot stop or fill: restore it with `etcd backup restore`, and remove the annotation", shard.Name())
		return nil
	}
	store := etcd.NewForShard(shard.Shard)
	if len(store.ClaimNames()) == 0 {
		i.unsupported = fmt.Sprintf("the etcd of shard %s is on emptyDir volumes, which exist only with its pods: give it etcd.managed.storage.size", shard.Name())
		return nil
	}
	set, err := apply.Get[appsv1.StatefulSet](ctx, cluster, shard.Namespace(), store.Name())
	if err != nil {
		return err
	}
	if set != nil {
		i.started = fmt.Sprintf("shard %s has started: StatefulSet %s exists", shard.Name(), set.Name)
	}
	for _, name := range store.ClaimNames() {
		claim, err := apply.Get[corev1.PersistentVolumeClaim](ctx, cluster, shard.Namespace(), name)
		if err != nil {
			return err
		}
		if claim != nil && !metav1.HasAnnotation(claim.ObjectMeta, operatorv1alpha1.AnnotationRestore) {
			i.started = fmt.Sprintf("shard %s may have data: PersistentVolumeClaim %s exists", shard.Name(), name)
		}
	}
	return nil
}
