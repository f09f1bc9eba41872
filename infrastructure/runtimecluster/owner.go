package runtimecluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/infrastructure/shortname"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// identifyInterval is how often identify retries to read the export of the provider.
const identifyInterval = 5 * time.Second

// identify returns the mark of a provider, which consists of the logical cluster of its workspace and the name of its export.
func identify(ctx context.Context, workspace *rest.Config, export string) (string, error) {
	scheme := runtime.NewScheme()
	if err := apisv1alpha2.AddToScheme(scheme); err != nil {
		return "", err
	}
	c, err := client.New(workspace, client.Options{Scheme: scheme})
	if err != nil {
		return "", fmt.Errorf("building the client of the workspace of the provider: %w", err)
	}
	found := &apisv1alpha2.APIExport{}
	err = wait.PollUntilContextCancel(ctx, identifyInterval, true, func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, client.ObjectKey{Name: export}, found)
		if err != nil && ctx.Err() == nil {
			logr.FromContextOrDiscard(ctx).Error(err, "Failed to read the export of the provider, will retry")
		}
		return err == nil, nil
	})
	if err != nil {
		return "", fmt.Errorf("reading the export of the provider: %w", err)
	}
	cluster := logicalcluster.Of(found)
	if cluster.Empty() {
		return "", fmt.Errorf("APIExport %s does not say in which logical cluster it is", export)
	}
	return Provider(cluster, export), nil
}

// Provider returns the mark of the provider whose export of that name is in a logical cluster.
func Provider(cluster logicalcluster.Name, export string) string {
	return shortname.Of(cluster.String()+"."+export, shortname.Label)
}

// errUnidentified means that the mark of this provider is unknown, so that it cannot recognize its own objects.
var errUnidentified = errors.New("the provider has not read yet in which logical cluster its export is, by which it identifies its objects")

// SetProvider sets the mark of the provider, which is a label value of its namespaces and inventories. It distinguishes them from those of
// other providers of the same group that use the cluster. Backend.Serve calls it.
func (c *Cluster) SetProvider(mark string) { c.provider.Store(&mark) }

// mark returns the mark of the provider, or an empty string before SetProvider.
func (c *Cluster) mark() string {
	if mark := c.provider.Load(); mark != nil {
		return *mark
	}
	return ""
}

// namespaceLabels returns the labels of the namespace of a tenant.
func (c *Cluster) namespaceLabels(tenant logicalcluster.Name) map[string]string {
	return map[string]string{managedBy: Owner, c.label(labelTenant): tenant.String(), c.label(labelProvider): c.mark()}
}

// isOwn reports whether a namespace or an inventory has the mark of this provider.
func (c *Cluster) isOwn(object client.Object) bool {
	provider, marked := object.GetLabels()[c.label(labelProvider)]
	return marked && provider == c.mark()
}

// isForeign reports whether a namespace or an inventory has the mark of another provider.
func (c *Cluster) isForeign(object client.Object) bool {
	provider, marked := object.GetLabels()[c.label(labelProvider)]
	return marked && provider != c.mark()
}

// isOfBackend reports whether an inventory belongs to this backend.
func (c *Cluster) isOfBackend(inventory *corev1.ConfigMap) bool {
	return inventory.Labels[c.label(labelBackend)] == c.Backend && c.isOwn(inventory)
}

// adopt adds the mark of this provider to an unmarked object, and returns an error if the object belongs to another provider. Callers call
// it only for an instance behind the export of this provider, so an unmarked object with the name of that instance belongs to it.
func (c *Cluster) adopt(ctx context.Context, what string, object client.Object) error {
	if c.isForeign(object) {
		return fmt.Errorf("the %s %s belongs to another provider: its label %s is %q", what, object.GetName(), c.label(labelProvider), object.GetLabels()[c.label(labelProvider)])
	}
	if c.isOwn(object) {
		return nil
	}
	before := object.DeepCopyObject().(client.Object)
	object.SetLabels(labels.Merge(object.GetLabels(), labels.Set{c.label(labelProvider): c.mark()}))
	// The optimistic lock detects another provider that marks the object at the same time.
	if err := c.Client.Patch(ctx, object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("marking the %s %s as this provider's: %w", what, object.GetName(), err)
	}
	return nil
}
