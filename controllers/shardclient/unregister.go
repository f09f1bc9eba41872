package shardclient

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// How often, and how long, Unregister polls the Shard in root after a shard has deleted its own.
const (
	unregisterPoll    = 200 * time.Millisecond
	unregisterTimeout = 10 * time.Second
)

// Unregister removes a shard from the installation: it deletes the Shard that the shard owns, and the root shard deletes the
// representation of that object in root. If the shard does not respond, or its version does not own a Shard, it deletes the Shard in root
// instead. The root shard would create that again while the shard sends heartbeats, so Unregister returns an error if a shard sends
// heartbeats but does not respond.
func (c *Clients) Unregister(ctx context.Context, root *operatorv1alpha1.RootShard, shard *operatorv1alpha1.Shard) error {
	server := desired.NewShard(shard, root)
	registered, err := c.registration(ctx, root, shard)
	if err != nil || registered == nil {
		return err
	}
	if isRepresentation(registered) {
		err := c.withShard(ctx, server, logicalcluster.Shard.Path(), func(client dynamic.Interface) error {
			return deleteShard(ctx, client, server.ShardName())
		})
		switch {
		case err == nil:
			if gone, err := c.waitUnregistered(ctx, root, shard); gone || err != nil {
				return err
			}
			return Errorf("waiting for RootShard %s to remove shard %s", root.Name, server.ShardName())
		case missingHeartbeatReason(registered) == "":
			return describeError(ctx, err, "requesting Shard %s, which still reports", shard.Name)
		}
	}
	err = c.withShard(ctx, desired.NewRootShard(root), logicalcluster.Root.Path(), func(client dynamic.Interface) error {
		return deleteShard(ctx, client, server.ShardName())
	})
	if err != nil {
		return describeError(ctx, err, "requesting shard %s from RootShard %s", server.ShardName(), root.Name)
	}
	return nil
}

// waitUnregistered waits for a limited time until root has no Shard of a shard.
func (c *Clients) waitUnregistered(ctx context.Context, root *operatorv1alpha1.RootShard, shard *operatorv1alpha1.Shard) (gone bool, err error) {
	err = wait.PollUntilContextTimeout(ctx, unregisterPoll, unregisterTimeout, true, func(ctx context.Context) (bool, error) {
		registered, err := c.registration(ctx, root, shard)
		gone = err == nil && registered == nil
		return gone, err
	})
	if wait.Interrupted(err) {
		return false, nil
	}
	return gone, err
}

func deleteShard(ctx context.Context, client dynamic.Interface, name string) error {
	err := client.Resource(shardsResource).Delete(ctx, name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// isRepresentation reports whether the root shard manages a Shard in root for a shard that owns another one.
func isRepresentation(shard *corev1alpha1.Shard) bool {
	return shard.Annotations[corev1alpha1.ShardRepresentationAnnotationKey] != ""
}
