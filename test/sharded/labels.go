package sharded

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
)

// regions are assigned to shards in turn, as kcp's test servers do.
var regions = []string{"us-east-2", "us-east-1", "us-west-1", "eu-central-1"}

// LabelShards labels the Shard objects as an administrator would, so that workspaces and partitions can select by
// region.
func (l *Layout) LabelShards(ctx context.Context) error {
	config, err := l.Masters(RootShard)
	if err != nil {
		return err
	}
	config = rest.CopyConfig(config)
	config.Host += "/clusters/root"
	scheme := runtime.NewScheme()
	if err := corev1alpha1.AddToScheme(scheme); err != nil {
		return err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	for i, name := range l.options.Shards {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]string{
			tenancyv1alpha1.RegionLabelKey: regions[i%len(regions)], "shared": "true",
		}}})
		if err != nil {
			return err
		}
		shard := &corev1alpha1.Shard{}
		shard.Name = name
		if err := c.Patch(ctx, shard, client.RawPatch(types.MergePatchType, patch)); err != nil {
			return fmt.Errorf("labelling shard %s: %w", name, err)
		}
	}
	return nil
}
