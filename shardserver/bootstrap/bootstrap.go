// Package bootstrap writes the initial content of a shard: the RBAC of system:admin, the logical cluster system:shard
// and, on the root shard, the logical cluster root with its exports (package rootapis), RBAC, workspace types and Shard
// object.
//
// All objects are compared and, if they differ, updated at every start; objects marked create-only are created once and
// are the administrator's afterwards. The package must not depend on how requests are authorized or served: it is an
// ordinary client of the shard's API.
package bootstrap

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// Annotations of bootstrapped objects.
const (
	// CreateOnlyAnnotation, with the value "true", excludes an existing object from updates.
	CreateOnlyAnnotation = "bootstrap.kcp.io/create-only"
	// BatteryAnnotation contains the batteries of an object, separated by commas.
	BatteryAnnotation = "bootstrap.kcp.io/battery"
)

// Batteries that add objects here.
const (
	batteryWorkspaceTypes = "workspace-types"
	batteryMetricsViewer  = "metrics-viewer"
)

// Options configure the content.
type Options struct {
	// ShardName is the name of this shard's Shard object.
	ShardName string
	// BaseURL, ExternalURL and VirtualWorkspaceURL are those of the Shard object. The latter two default to the first.
	BaseURL, ExternalURL, VirtualWorkspaceURL string
	// ShardLabels are labels of the Shard object, besides the one with its name.
	ShardLabels map[string]string
	// Root is set on the root shard, which has the logical cluster root.
	Root bool
	// Batteries are the enabled batteries.
	Batteries []string
	// HomeWorkspaces adds the type of home workspaces and the permission of HomeCreatorGroups to create one.
	HomeWorkspaces bool
	// HomeCreatorGroups are the groups whose members may have a home workspace.
	HomeCreatorGroups []string
	// CacheAPIs binds cache.kcp.io in root.
	CacheAPIs bool
}

func (o Options) has(battery string) bool { return slices.Contains(o.Batteries, battery) }

func (o Options) externalURL() string { return cmp.Or(o.ExternalURL, o.BaseURL) }

func (o Options) virtualWorkspaceURL() string { return cmp.Or(o.VirtualWorkspaceURL, o.BaseURL) }

// Run updates the shard's content through a client that sends requests to the logical cluster of their context and has
// all permissions. It retries until it succeeds, the context ends, or the server refuses an object as invalid. Several
// replicas may run it concurrently.
func Run(ctx context.Context, c client.Client, options Options) error {
	all, err := stages(options)
	if err != nil {
		return err
	}
	return retry(ctx, "bootstrapping the shard", func(ctx context.Context) error {
		for _, s := range all {
			if err := s.apply(ctx, c); err != nil {
				return err
			}
		}
		return nil
	})
}

// stages returns all stages in order: a stage may depend on those before it. System clusters come first, because the
// RBAC of system:admin applies to all others; a LogicalCluster comes before its content.
func stages(options Options) ([]stage, error) {
	schemas, err := rootSchemas()
	if err != nil {
		return nil, err
	}
	all := []stage{
		{cluster: logicalcluster.Admin, objects: systemPolicy()},
		{cluster: logicalcluster.Admin, objects: namespaces("default", "kube-system")},
		{cluster: logicalcluster.Shard, objects: []client.Object{shardLogicalCluster(options)}},
		{cluster: logicalcluster.Shard, objects: namespaces("default")},
	}
	shardStages := []stage{
		{cluster: logicalcluster.Shard, objects: shardBindings()},
		{cluster: logicalcluster.Shard, objects: []client.Object{shard(options)}},
	}
	if !options.Root {
		return append(all, shardStages...), nil
	}
	all = append(all,
		stage{cluster: logicalcluster.Root, objects: []client.Object{rootLogicalCluster(options)}},
		stage{cluster: logicalcluster.Root, objects: schemas},
		stage{cluster: logicalcluster.Root, objects: rootExports()},
		stage{cluster: logicalcluster.Root, objects: rootBindings(options)},
	)
	all = append(all, shardStages...)
	return append(all,
		stage{cluster: logicalcluster.Root, objects: rootPolicy(options)},
		stage{cluster: logicalcluster.Root, objects: namespaces("default", "kube-system", apisv1alpha2.IdentitySecretNamespace)},
		stage{cluster: logicalcluster.Root, objects: workspaceTypes(options)},
		stage{cluster: logicalcluster.Root, objects: metricsViewer(options)},
		stage{cluster: logicalcluster.Root, objects: []client.Object{representation(options)}},
	), nil
}

// quietRetries is the number of retries that are not logged by default: the first requests may precede the handlers that
// serve them.
const quietRetries = 4

// retry calls f until it succeeds or fails permanently.
func retry(ctx context.Context, description string, f func(context.Context) error) error {
	backoff := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.1, Steps: 6, Cap: 5 * time.Second}
	for level := quietRetries; ; level = max(level-1, 0) {
		err := f(ctx)
		if err == nil {
			return nil
		}
		if isPermanent(err) {
			return fmt.Errorf("%s: %w", description, err)
		}
		delay := backoff.Step()
		klog.FromContext(ctx).V(level).Info("Trying again", "what", description, "delay", delay, "err", err)
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", description, errors.Join(ctx.Err(), err))
		case <-time.After(delay):
		}
	}
}

// isPermanent reports whether an error is permanent, caused by this build. NotFound is temporary: the API may not be
// served yet.
func isPermanent(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || meta.IsNoMatchError(err)
}
