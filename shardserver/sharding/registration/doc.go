// Package registration keeps the two Shard objects of each shard in agreement. A shard owns the one in its logical cluster system:shard, which
// the bootstrap writes at each start, and publishes it. The root shard keeps a representation of it in root, for users, for front proxies, and as
// the register of which shards exist.
//
// Labels and addresses go from the owned Shard to the representation (representation.go). What administrators decide goes the other way
// (decisions.go): they write it to the representation, on the root shard, which other shards trust about shards. The status of both is written
// by package heartbeat.
package registration

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

var shards = corev1alpha1.Resource("shards")

// Config configures the controllers.
type Config struct {
	Registry *storage.Registry
	// Client is a loopback client.
	Client client.Client
	// ShardName is the name of this shard.
	ShardName string
	// Reports returns whether another shard is known to run. It is needed on the root shard only.
	Reports func(shard string) bool
}

// reader reads both Shard objects of a shard.
type reader struct {
	registry *storage.Registry
	own      string
	inRoot   *storage.Reader[*corev1alpha1.Shard]
	local    *storage.Reader[*corev1alpha1.Shard]
}

func newReader(cfg Config) reader {
	local := storage.NewReader[*corev1alpha1.Shard](cfg.Registry, shards)
	return reader{registry: cfg.Registry, own: cfg.ShardName, local: local, inRoot: local.Global()}
}

// representation returns the Shard in root, or nil if there is none.
func (r reader) representation(ctx context.Context, name string) (*corev1alpha1.Shard, error) {
	return orNil(r.inRoot.Get(logicalcluster.With(ctx, logicalcluster.Root), "", name))
}

// owned returns the Shard that a shard owns, or nil if there is none.
func (r reader) owned(ctx context.Context, name string) (*corev1alpha1.Shard, error) {
	if name == r.own {
		return orNil(r.local.Get(logicalcluster.With(ctx, logicalcluster.Shard), "", name))
	}
	remote := r.registry.RemoteStore()
	if object, found := remote.Get(shards, logicalcluster.Shard, "", name); found {
		shard, ok := object.(*corev1alpha1.Shard)
		if !ok {
			return nil, fmt.Errorf("the Shard of shard %q is a %T", name, object)
		}
		return shard, nil
	}
	if err := remote.CheckSynced(shards); err != nil {
		return nil, fmt.Errorf("the Shards of other shards are not known yet: %w", err)
	}
	return nil, nil
}

func orNil(shard *corev1alpha1.Shard, err error) (*corev1alpha1.Shard, error) {
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return shard, err
}

// shardOf returns the Shard of an event, or nil.
func shardOf(event watch.Event) *corev1alpha1.Shard {
	shard, _ := event.Object.(*corev1alpha1.Shard)
	return shard
}

// published is the source of the Shards that other shards own.
func published(cfg Config, mapFunc controller.MapFunc) controller.Source {
	return controller.Source{Resource: shards, MapFunc: mapFunc, WatchFunc: func(ctx context.Context) (watch.Interface, error) {
		return cfg.Registry.RemoteStore().Watch(ctx, shards)
	}}
}
