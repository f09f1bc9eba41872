// Package bootstrap writes what a shard must hold before it is of use: the RBAC of system:admin, the logical cluster
// system:shard and, on the root shard, the logical cluster root with its exports (package rootapis), RBAC, workspace types
// and Shard object.
//
// Everything is compared and, where it differs, overwritten at every start; objects marked create-only are written
// once and belong to the administrator from then on. It must not know how requests are decided or served: it is an
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
	// CreateOnlyAnnotation, with the value "true", keeps an object as the administrator left it.
	CreateOnlyAnnotation = "bootstrap.kcp.io/create-only"
	// BatteryAnnotation names the batteries that an object comes from, separated by commas.
	BatteryAnnotation = "bootstrap.kcp.io/battery"
)

// Batteries that add objects here.
const (
	batteryWorkspaceTypes = "workspace-types"
	batteryMetricsViewer  = "metrics-viewer"
)

// Options says what is to be written.
type Options struct {
	// ShardName is the name of this shard's Shard object.
	ShardName string
	// BaseURL, ExternalURL and VirtualWorkspaceURL are those of the Shard object. The latter two default to the first.
	BaseURL, ExternalURL, VirtualWorkspaceURL string
	// Root tells that this is the root shard, which holds the logical cluster root.
	Root bool
	// Batteries are the optional parts that are on.
	Batteries []string
	// HomeWorkspaces adds the type of home workspaces and the right of HomeCreatorGroups to have one.
	HomeWorkspaces bool
	// HomeCreatorGroups are the groups whose members may have a home workspace.
	HomeCreatorGroups []string
	// CacheAPIs binds cache.kcp.io in root.
	CacheAPIs bool
}

func (o Options) has(battery string) bool { return slices.Contains(o.Batteries, battery) }

func (o Options) externalURL() string { return cmp.Or(o.ExternalURL, o.BaseURL) }

func (o Options) virtualWorkspaceURL() string { return cmp.Or(o.VirtualWorkspaceURL, o.BaseURL) }

// Run brings the shard's content up to date over a client that sends requests to the logical cluster of their context
// and may do everything. It tries again until it is done, the context ends, or the server says that an object can
// never be accepted. Several replicas may run it at once.
func Run(ctx context.Context, c client.Client, options Options) error {
	all, err := stages(options)
	if err != nil {
		return err
	}
	return persist(ctx, "bootstrapping the shard", func(ctx context.Context) error {
		for _, s := range all {
			if err := s.apply(ctx, c); err != nil {
				return err
			}
		}
		return nil
	})
}

// stages lists everything in order: a stage may rely on those before it. System clusters come first, because the
// RBAC of system:admin decides about all the others; a LogicalCluster comes before what it contains.
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
	ofShard := stage{cluster: logicalcluster.Shard, objects: shardBindings()}
	if !options.Root {
		return append(all, ofShard), nil
	}
	return append(all,
		stage{cluster: logicalcluster.Root, objects: []client.Object{rootLogicalCluster(options)}},
		stage{cluster: logicalcluster.Root, objects: schemas},
		stage{cluster: logicalcluster.Root, objects: rootExports()},
		stage{cluster: logicalcluster.Root, objects: rootBindings(options)},
		ofShard,
		stage{cluster: logicalcluster.Root, objects: rootPolicy(options)},
		stage{cluster: logicalcluster.Root, objects: namespaces("default", "kube-system", apisv1alpha2.IdentitySecretNamespace)},
		stage{cluster: logicalcluster.Root, objects: workspaceTypes(options)},
		stage{cluster: logicalcluster.Root, objects: metricsViewer(options)},
		stage{cluster: logicalcluster.Root, objects: []client.Object{shard(options)}},
	), nil
}

// persist calls f until it succeeds or can never succeed.
func persist(ctx context.Context, what string, f func(context.Context) error) error {
	backoff := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.1, Steps: 6, Cap: 5 * time.Second}
	for {
		err := f(ctx)
		if err == nil {
			return nil
		}
		if hopeless(err) {
			return fmt.Errorf("%s: %w", what, err)
		}
		delay := backoff.Step()
		klog.FromContext(ctx).V(1).Info("Trying again", "what", what, "delay", delay, "err", err)
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, errors.Join(ctx.Err(), err))
		case <-time.After(delay):
		}
	}
}

// hopeless tells errors that are the fault of this build from those of the moment. Not found is of the moment: an API
// may be about to be served.
func hopeless(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || meta.IsNoMatchError(err)
}
