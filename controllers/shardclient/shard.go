package shardclient

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/logicalcluster"
)

var logicalClustersResource = corev1alpha1.SchemeGroupVersion.WithResource("logicalclusters")

// LogicalClusters counts the logical clusters on a shard, without those that every shard has ("system:..."). The error
// is why they cannot be counted.
func (c *Clients) LogicalClusters(ctx context.Context, root *operatorv1alpha1.RootShard, shard *operatorv1alpha1.Shard) (int, error) {
	server := desired.NewShard(shard, root)
	if err := c.removeProbes(ctx, root, server.ShardName()); err != nil {
		return 0, describeError(ctx, err, "requesting RootShard %s", root.Name)
	}
	count := 0
	// Only a shard itself may list all logical clusters at once.
	err := c.withShard(ctx, server, logicalcluster.Wildcard.Path(), func(client dynamic.Interface) error {
		options := metav1.ListOptions{Limit: 500}
		for {
			page, err := client.Resource(logicalClustersResource).List(ctx, options)
			if err != nil {
				return err
			}
			for i := range page.Items {
				if !strings.HasPrefix(page.Items[i].GetAnnotations()[logicalcluster.AnnotationKey], "system:") {
					count++
				}
			}
			if options.Continue = page.GetContinue(); options.Continue == "" {
				return nil
			}
		}
	})
	if err != nil {
		return 0, describeError(ctx, err, "requesting Shard %s", shard.Name)
	}
	return count, nil
}

// Registered reports whether a shard is registered in the installation. One that never started is not, and holds no
// data.
func (c *Clients) Registered(ctx context.Context, root *operatorv1alpha1.RootShard, shard *operatorv1alpha1.Shard) (bool, error) {
	found := false
	err := c.withRegistration(ctx, root, shard, func(shards dynamic.ResourceInterface, name string) error {
		_, err := shards.Get(ctx, name, metav1.GetOptions{})
		found = err == nil
		return err
	})
	return found, err
}

// Cordon keeps new workspaces off a shard. One that is not registered has none.
func (c *Clients) Cordon(ctx context.Context, root *operatorv1alpha1.RootShard, shard *operatorv1alpha1.Shard) error {
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:"being deleted"}}}`, corev1alpha1.UnschedulableAnnotationKey)
	return c.withRegistration(ctx, root, shard, func(shards dynamic.ResourceInterface, name string) error {
		_, err := shards.Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	})
}

// Unregister deletes the Shard object of a shard inside the installation.
func (c *Clients) Unregister(ctx context.Context, root *operatorv1alpha1.RootShard, shard *operatorv1alpha1.Shard) error {
	return c.withRegistration(ctx, root, shard, func(shards dynamic.ResourceInterface, name string) error {
		return shards.Delete(ctx, name, metav1.DeleteOptions{})
	})
}

func (c *Clients) withRegistration(ctx context.Context, root *operatorv1alpha1.RootShard, shard *operatorv1alpha1.Shard, do func(dynamic.ResourceInterface, string) error) error {
	name := desired.NewShard(shard, root).ShardName()
	err := c.withRoot(ctx, root, func(client dynamic.Interface) error {
		return do(client.Resource(shardsResource), name)
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return describeError(ctx, err, "requesting shard %s from RootShard %s", name, root.Name)
	}
	return nil
}
