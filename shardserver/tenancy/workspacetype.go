package tenancy

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/sharding/endpoints"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// workspaceTypeController publishes the virtual workspace URLs of initializers and terminators in the status of types.
type workspaceTypeController struct {
	cfg    Config
	types  *storage.Reader[*tenancyv1alpha1.WorkspaceType]
	shards endpoints.ShardLister
}

func newWorkspaceTypeController(cfg Config) controller.Controller {
	c := &workspaceTypeController{
		cfg:    cfg,
		types:  storage.NewReader[*tenancyv1alpha1.WorkspaceType](cfg.Registry, workspaceTypes),
		shards: endpoints.NewShardLister(cfg.Registry),
	}
	return controller.Controller{
		Name: "workspacetype",
		Sources: []controller.Source{
			{Resource: workspaceTypes, MapFunc: controller.RequestForObject},
			{Resource: shards, Global: true, MapFunc: mapToAll(c.types, new(endpoints.ShardChanges).Changed)},
		},
		MaxConcurrentReconciles: 2,
		Reconcile:               c.reconcile,
	}
}

func (c *workspaceTypeController) reconcile(ctx context.Context, key controller.Request) (controller.Result, error) {
	stored, err := c.types.Get(ctx, "", key.Name)
	if err != nil {
		return controller.Result{}, client.IgnoreNotFound(err)
	}
	if stored.DeletionTimestamp != nil {
		return controller.Result{}, nil
	}
	all, err := c.shards.List(ctx)
	if err != nil {
		return controller.Result{}, fmt.Errorf("listing shards: %w", err)
	}
	updated := stored.DeepCopy()
	setVirtualWorkspaces(updated, key.ClusterName, all)
	if equality.Semantic.DeepEqual(stored.Status, updated.Status) {
		return controller.Result{}, nil
	}
	if err := c.cfg.Clients.Typed.Status().Update(ctx, updated); client.IgnoreNotFound(err) != nil {
		return controller.Result{}, fmt.Errorf("updating the status of workspace type %q: %w", key.Name, err)
	}
	return controller.Result{}, nil
}

// setVirtualWorkspaces sets the URLs of all shards, sorted by shard. If one is invalid, the previous list is kept.
func setVirtualWorkspaces(workspaceType *tenancyv1alpha1.WorkspaceType, cluster logicalcluster.Name, all []*corev1alpha1.Shard) {
	defer conditionsv1alpha1.SetSummary(workspaceType)
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b *corev1alpha1.Shard) int { return cmp.Compare(a.Name, b.Name) })
	var urls []tenancyv1alpha1.VirtualWorkspace
	for _, shard := range all {
		base := shard.Spec.VirtualWorkspaceURL
		if base == "" {
			continue
		}
		if parsed, err := url.Parse(base); err != nil || parsed.Scheme == "" || parsed.Host == "" {
			conditionsv1alpha1.MarkFalse(workspaceType, tenancyv1alpha1.WorkspaceTypeVirtualWorkspaceURLsReady, tenancyv1alpha1.ReasonErrorGeneratingURLs, conditionsv1alpha1.SeverityError,
				"shard %q has the invalid virtual workspace URL %q", shard.Name, base)
			return
		}
		services, name := strings.TrimSuffix(base, "/")+"/services/", "/"+cluster.String()+":"+workspaceType.Name
		urls = append(urls,
			tenancyv1alpha1.VirtualWorkspace{URL: services + "initializingworkspaces" + name, Type: tenancyv1alpha1.VirtualWorkspaceTypeInitializing},
			tenancyv1alpha1.VirtualWorkspace{URL: services + "terminatingworkspaces" + name, Type: tenancyv1alpha1.VirtualWorkspaceTypeTerminating},
		)
	}
	workspaceType.Status.VirtualWorkspaces = urls
	conditionsv1alpha1.MarkTrue(workspaceType, tenancyv1alpha1.WorkspaceTypeVirtualWorkspaceURLsReady)
}
