// Package cleanup finds and removes what an agent has left behind.
package cleanup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	"github.com/atoll-dev/atoll/internal/background"
	"github.com/atoll-dev/atoll/internal/workspaces"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/syncagent/dialects"
	"github.com/atoll-dev/atoll/syncagent/options"
	"github.com/atoll-dev/atoll/syncagent/publication"
	"github.com/atoll-dev/atoll/syncagent/servers"
	"github.com/atoll-dev/atoll/syncagent/source"
	"github.com/atoll-dev/atoll/syncagent/state"
	"github.com/atoll-dev/atoll/syncagent/syncer"
)

// command finds what an agent has left behind: copies, states and finalizers of deleted or disabled PublishedResources, and of workspaces
// that do not bind the export any more.
type command struct {
	config           *options.Config
	export           *servers.Export
	exports          client.Client // of the workspace of the export
	service          client.Client
	serviceDiscovery *discovery.DiscoveryClient
	serviceMetadata  metadata.Interface
	reader           *dialects.Reader
	endpoints        []*workspaces.Endpoint
}

// Run lists what an agent has left behind, one line each, and removes it if remove is true. It returns an error before it decides
// anything if an endpoint does not respond: otherwise the objects of that endpoint would count as deleted.
func Run(ctx context.Context, config *options.Config, remove bool, out io.Writer) error {
	c, err := newCommand(ctx, config)
	if err != nil {
		return err
	}
	exported, err := c.exportedResources(ctx)
	if err != nil {
		return err
	}
	// Copies are deleted first, because the finalizers guarantee that copies are deleted before their sources.
	steps := []func(context.Context) ([]leftover, error){c.findCopies, c.findStates}
	for _, endpoint := range c.endpoints {
		steps = append(steps, func(ctx context.Context) ([]leftover, error) { return c.findFinalizers(ctx, endpoint, exported) })
	}
	for _, find := range steps {
		if err := c.run(ctx, find, remove, out); err != nil {
			return err
		}
	}
	return nil
}

// run lists, or removes, what one step finds. It reads the existing primary objects after the candidates, so that the copy of an object
// that has just been created does not count as left behind.
func (c *command) run(ctx context.Context, find func(context.Context) ([]leftover, error), remove bool, out io.Writer) error {
	candidates, err := find(ctx)
	if err != nil || len(candidates) == 0 {
		return err
	}
	alive, err := c.findLiving(ctx)
	if err != nil {
		return err
	}
	var failed []error
	for _, l := range candidates {
		description := l.describe(alive)
		if description == "" {
			continue
		}
		if _, err := fmt.Fprintln(out, description); err != nil {
			return err
		}
		if !remove {
			continue
		}
		if err := l.remove(ctx, alive); err != nil {
			failed = append(failed, fmt.Errorf("removing %s: %w", description, err))
		}
	}
	return errors.Join(failed...)
}

func newCommand(ctx context.Context, config *options.Config) (*command, error) {
	export, err := servers.Check(ctx, config)
	if err != nil {
		return nil, err
	}
	service := rest.CopyConfig(config.Service)
	service.QPS = -1 // the server's priority and fairness applies
	c := &command{config: config, export: export}
	if c.service, err = client.New(service, client.Options{Scheme: servers.Scheme}); err != nil {
		return nil, err
	}
	if c.serviceDiscovery, err = discovery.NewDiscoveryClientForConfig(service); err != nil {
		return nil, err
	}
	if c.serviceMetadata, err = metadata.NewForConfig(metadata.ConfigFor(service)); err != nil {
		return nil, err
	}
	kcp, err := servers.NewClient(config.Kcp, servers.EndpointSlices)
	if err != nil {
		return nil, err
	}
	slice := &apisv1alpha1.APIExportEndpointSlice{}
	if err := kcp.Get(ctx, client.ObjectKey{Name: config.EndpointSlice}, slice); err != nil {
		return nil, fmt.Errorf("reading APIExportEndpointSlice %s: %w", config.EndpointSlice, err)
	}
	if c.exports, err = servers.NewClient(export.Config, servers.APIExports); err != nil {
		return nil, err
	}
	c.reader, err = dialects.NewReader(dialects.Options{Client: c.service, Selector: config.Selector, Group: dialects.ServiceGroup(c.exports, export.Name)})
	if err != nil {
		return nil, err
	}
	return c, c.connect(ctx, slice)
}

// connect connects to the endpoints of the slice and to those that the agent has used before: the objects of an endpoint that is not read
// would count as deleted.
func (c *command) connect(ctx context.Context, slice *apisv1alpha1.APIExportEndpointSlice) error {
	urls, err := workspaces.EndpointURLs(slice)
	if err != nil {
		return fmt.Errorf("nothing was decided: %w", err)
	}
	if c.endpoints, err = workspaces.NewKnown(c.config.Kcp, servers.Remembered(c.service, c.config)).Read(ctx, urls); err != nil {
		return err
	}
	if len(c.endpoints) == 0 {
		return fmt.Errorf("nothing was decided: APIExportEndpointSlice %s has no endpoints, and the agent has used none before", slice.Name)
	}
	return nil
}

// exportedResources returns the resources of the export, without the resources that it claims.
func (c *command) exportedResources(ctx context.Context) (map[schema.GroupResource]bool, error) {
	export := &apisv1alpha1.APIExport{}
	if err := c.exports.Get(ctx, client.ObjectKey{Name: c.export.Name}, export); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading APIExport %s: %w", c.export.Name, err)
	}
	resources := map[schema.GroupResource]bool{}
	for _, name := range export.Spec.LatestResourceSchemas {
		_, resource, _ := strings.Cut(name, ".") // <prefix>.<resource>.<group>
		resources[schema.ParseGroupResource(resource)] = true
	}
	return resources, nil
}

// findLiving reads all primary objects of PublishedResources that are synced.
func (c *command) findLiving(ctx context.Context) (*living, error) {
	alive := &living{
		services: map[schema.GroupResource]bool{}, workspaces: map[schema.GroupResource]bool{},
		copies: map[schema.GroupResource]map[syncer.Source]bool{}, states: map[string]bool{}, finalizers: map[string]bool{},
	}
	err := c.eachSynced(ctx, func(*publication.Publication) bool { return true }, func(service, workspace workspaces.Resource) error {
		return c.addLiving(ctx, alive, service, workspace)
	})
	return alive, err
}

// eachSynced calls visit with the resources on both sides of each selected PublishedResource that is synced. It includes invalid ones,
// because they may have been synced while they were valid.
func (c *command) eachSynced(ctx context.Context, selects func(*publication.Publication) bool, visit func(service, workspace workspaces.Resource) error) error {
	publications, err := c.reader.List(ctx)
	if err != nil {
		return err
	}
	for _, p := range publications {
		if !p.Syncs() || !selects(p) {
			continue
		}
		service, workspace, err := servers.Resolve(ctx, c.serviceDiscovery, c.service, p)
		if errors.Is(err, source.ErrNotServed) {
			continue // no copies can exist
		}
		if err != nil {
			return fmt.Errorf("nothing was decided, because PublishedResource %s cannot be resolved: %w", p.Object.GetName(), err)
		}
		if err := visit(service, workspace); err != nil {
			return err
		}
	}
	return nil
}

func (c *command) addLiving(ctx context.Context, alive *living, service, workspace workspaces.Resource) error {
	copied := service.GroupVersionResource().GroupResource()
	alive.services[copied], alive.workspaces[workspace.GroupVersionResource().GroupResource()] = true, true
	if alive.copies[copied] == nil {
		alive.copies[copied] = map[syncer.Source]bool{}
	}
	for _, endpoint := range c.endpoints {
		err := endpoint.Each(ctx, workspace, func(cluster logicalcluster.Name, name types.NamespacedName) {
			primary := syncer.Source{Cluster: cluster, NamespacedName: name}
			alive.copies[copied][primary] = true
			alive.states[stateName(workspace, primary)] = true
			alive.finalizers[syncer.RelatedFinalizer(c.config.AgentName, workspace, primary)] = true
		})
		if err != nil {
			return fmt.Errorf("nothing was decided: %w", err)
		}
	}
	return nil
}

func stateName(workspace workspaces.Resource, primary syncer.Source) string {
	return state.SecretName(state.Primary{Cluster: primary.Cluster, GroupVersionKind: workspace.GroupVersionKind, NamespacedName: primary.NamespacedName})
}

// removalTimeout bounds how long the command waits for one copy that has finalizers of other controllers.
const removalTimeout, removalInterval = 5 * time.Second, 200 * time.Millisecond

// removeCopy deletes a copy, its related objects and its state, and returns when they no longer exist.
func (c *command) removeCopy(ctx context.Context, service workspaces.Resource, key types.NamespacedName, primary syncer.Source) error {
	for deadline := time.Now().Add(removalTimeout); ; {
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(service.GroupVersionKind)
		if err := c.service.Get(ctx, key, object); err != nil {
			return client.IgnoreNotFound(err)
		}
		if current, ok := syncer.SourceOf(object); !ok || current != primary || object.GetLabels()[publication.LabelAgentName] != c.config.AgentName {
			return nil // another object has replaced it
		}
		if err := c.confirm(ctx, service, primary); err != nil {
			return err
		}
		if err := c.deleteCopy(ctx, service, object, primary); err != nil {
			return err
		}
		if !time.Now().Before(deadline) {
			return errors.New("it, or a copy of a related object, is still being deleted; run the command again when it is gone")
		}
		if !background.Sleep(ctx, removalInterval) {
			return ctx.Err()
		}
	}
}

// confirm looks for the source at all endpoints again just before a copy is removed: a consumer may have created it in the meantime.
func (c *command) confirm(ctx context.Context, service workspaces.Resource, primary syncer.Source) error {
	sameKind := func(p *publication.Publication) bool {
		return p.Spec.Resource.APIGroup == service.Group && p.Spec.Resource.Kind == service.Kind
	}
	return c.eachSynced(ctx, sameKind, func(_, workspace workspaces.Resource) error {
		missing, err := workspaces.Missing(ctx, c.endpoints, workspace, []workspaces.Object{workspaces.Object(primary)})
		if err == nil && len(missing) == 0 {
			err = errors.New("its source exists now")
		}
		return err
	})
}

func (c *command) deleteCopy(ctx context.Context, service workspaces.Resource, object *unstructured.Unstructured, primary syncer.Source) error {
	workspace, err := c.findWorkspaceResource(ctx, object, primary)
	if err != nil {
		return err
	}
	_, err = syncer.New(syncer.Config{
		AgentName: c.config.AgentName, Namespace: c.config.Namespace, Publication: &publication.Publication{},
		WorkspaceResource: workspace, ServiceResource: service, Service: c.service,
	}).DeleteOrphan(ctx, object)
	if apierrors.IsConflict(err) {
		return nil // another client has changed it; the next attempt reads it again
	}
	return err
}

// findWorkspaceResource finds the resource of a primary object whose PublishedResource may be deleted, by the name of the primary
// object's state.
func (c *command) findWorkspaceResource(ctx context.Context, object *unstructured.Unstructured, primary syncer.Source) (workspaces.Resource, error) {
	candidates := map[string]workspaces.Resource{}
	for _, endpoint := range c.endpoints {
		discovery, err := endpoint.Discovery()
		if err != nil {
			return workspaces.Resource{}, err
		}
		resources, err := servers.Listable(discovery)
		if err != nil {
			return workspaces.Resource{}, err
		}
		for _, resource := range resources {
			if syncer.BelongsTo(object, resource) {
				candidates[stateName(resource, primary)] = resource
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(candidates)) {
		_, err := c.serviceMetadata.Resource(workspaces.Secrets.GroupVersionResource()).Namespace(c.config.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			return candidates[name], nil
		}
		if !apierrors.IsNotFound(err) {
			return workspaces.Resource{}, fmt.Errorf("reading state %s: %w", name, err)
		}
	}
	return workspaces.Resource{}, nil
}

// isNotListable reports whether the agent cannot have written a resource, because it does not even have permission to list it.
func isNotListable(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err)
}
