package shardclient

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/logicalcluster"
)

var (
	logicalClustersResource = corev1alpha1.SchemeGroupVersion.WithResource("logicalclusters")
	exportsResource         = apisv1alpha2.SchemeGroupVersion.WithResource("apiexports")
)

// LogicalClusters counts the logical clusters on a shard, without those that every shard has ("system:..."). The error
// is why they cannot be counted.
func (c *Clients) LogicalClusters(ctx context.Context, root *operatorv1alpha1.RootShard, shard *operatorv1alpha1.Shard) (int, error) {
	server := desired.NewShard(shard, root)
	if err := c.deleteProbes(ctx, root, probeLabel+"="+server.ShardName()); err != nil {
		return 0, describeError(ctx, err, "requesting RootShard %s", root.Name)
	}
	count := 0
	err := c.withShard(ctx, server, logicalcluster.Wildcard.Path(), func(client dynamic.Interface) error {
		return forEach(ctx, client.Resource(logicalClustersResource), func(object unstructured.Unstructured) {
			if !strings.HasPrefix(object.GetAnnotations()[logicalcluster.AnnotationKey], "system:") {
				count++
			}
		})
	})
	if err != nil {
		return 0, describeError(ctx, err, "requesting Shard %s", shard.Name)
	}
	return count, nil
}

// CountLogicalClusters counts all logical clusters on a shard, also those that every shard has. It writes nothing.
func (c *Clients) CountLogicalClusters(ctx context.Context, shard desired.Shard) (int64, error) {
	var count int64
	err := c.withShard(ctx, shard, logicalcluster.Wildcard.Path(), func(client dynamic.Interface) error {
		return forEach(ctx, client.Resource(logicalClustersResource), func(unstructured.Unstructured) { count++ })
	})
	if err != nil {
		return 0, describeError(ctx, err, "requesting shard %s", shard.Name())
	}
	return count, nil
}

// Workspaces counts the workspaces of an installation: the logical clusters on the root shard, without root and those that every shard
// has, and the workspaces in them that are on other shards. Every workspace on another shard has an ancestor among these.
func (c *Clients) Workspaces(ctx context.Context, root *operatorv1alpha1.RootShard) (int, error) {
	found := sets.New[string]()
	workspaces := workspacesResource
	err := c.deleteProbes(ctx, root, probeLabel)
	if err == nil {
		err = c.withRoot(ctx, root, func(client dynamic.Interface) error {
			identity, err := identityOf(ctx, client, tenancyv1alpha1.SchemeGroupVersion.Group)
			workspaces.Resource += ":" + identity // a list of all logical clusters requires the identity
			return err
		})
	}
	if err == nil {
		err = c.withShard(ctx, desired.NewRootShard(root), logicalcluster.Wildcard.Path(), func(client dynamic.Interface) error {
			err := forEach(ctx, client.Resource(logicalClustersResource), func(object unstructured.Unstructured) {
				found.Insert(object.GetAnnotations()[logicalcluster.AnnotationKey])
			})
			if err != nil {
				return err
			}
			return forEach(ctx, client.Resource(workspaces), func(object unstructured.Unstructured) {
				if cluster, _, _ := unstructured.NestedString(object.Object, "spec", "cluster"); cluster != "" {
					found.Insert(cluster)
				}
			})
		})
	}
	if err != nil {
		return 0, describeError(ctx, err, "requesting RootShard %s", root.Name)
	}
	count := 0
	for cluster := range found {
		if cluster != logicalcluster.Root.String() && !strings.HasPrefix(cluster, "system:") {
			count++
		}
	}
	return count, nil
}

// identityOf returns the identity of an export in root.
func identityOf(ctx context.Context, client dynamic.Interface, name string) (string, error) {
	export, err := client.Resource(exportsResource).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	identity, _, _ := unstructured.NestedString(export.Object, "status", "identityHash")
	if identity == "" {
		return "", fmt.Errorf("the APIExport %s in root has no identity yet", export.GetName())
	}
	return identity, nil
}

// forEach calls do with each object of a resource.
func forEach(ctx context.Context, resource dynamic.ResourceInterface, do func(unstructured.Unstructured)) error {
	options := metav1.ListOptions{Limit: 500}
	for {
		page, err := resource.List(ctx, options)
		if err != nil {
			return err
		}
		for i := range page.Items {
			do(page.Items[i])
		}
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return nil
		}
	}
}

// CordonAll prevents the scheduling of new workspaces to all shards of an installation.
func (c *Clients) CordonAll(ctx context.Context, root *operatorv1alpha1.RootShard) error {
	err := c.withAdmin(ctx, root, func(client dynamic.Interface) error {
		shards := client.Resource(shardsResource)
		list, err := shards.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			if err := cordon(ctx, shards, list.Items[i].GetName()); err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return describeError(ctx, err, "requesting RootShard %s", root.Name)
	}
	return nil
}

// Registered reports whether a shard is registered in the installation. A shard that never started is not, and has no data.
func (c *Clients) Registered(ctx context.Context, root *operatorv1alpha1.RootShard, shard *operatorv1alpha1.Shard) (bool, error) {
	registered, err := c.registration(ctx, root, shard)
	return registered != nil, err
}

// registration returns the Shard of a shard in root, or nil.
func (c *Clients) registration(ctx context.Context, root *operatorv1alpha1.RootShard, shard *operatorv1alpha1.Shard) (*corev1alpha1.Shard, error) {
	name := desired.NewShard(shard, root).ShardName()
	found := &corev1alpha1.Shard{}
	err := c.withRoot(ctx, root, func(client dynamic.Interface) error {
		object, err := client.Resource(shardsResource).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		return runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, found)
	})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, describeError(ctx, err, "requesting shard %s from RootShard %s", name, root.Name)
	}
	return found, nil
}

// Cordon prevents the scheduling of new workspaces to a shard. A shard that is not registered gets none.
func (c *Clients) Cordon(ctx context.Context, root *operatorv1alpha1.RootShard, shard *operatorv1alpha1.Shard) error {
	name := desired.NewShard(shard, root).ShardName()
	err := c.withAdmin(ctx, root, func(client dynamic.Interface) error {
		return cordon(ctx, client.Resource(shardsResource), name)
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return describeError(ctx, err, "requesting shard %s from RootShard %s", name, root.Name)
	}
	return nil
}

func cordon(ctx context.Context, shards dynamic.ResourceInterface, name string) error {
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:"being deleted"}}}`, corev1alpha1.UnschedulableAnnotationKey)
	_, err := shards.Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}
