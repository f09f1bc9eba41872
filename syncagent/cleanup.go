package syncagent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

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
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/syncagent/dialects"
	"github.com/atoll-dev/atoll/syncagent/endpoints"
	"github.com/atoll-dev/atoll/syncagent/options"
	"github.com/atoll-dev/atoll/syncagent/publication"
	"github.com/atoll-dev/atoll/syncagent/source"
	"github.com/atoll-dev/atoll/syncagent/state"
	"github.com/atoll-dev/atoll/syncagent/syncer"
)

// cleanup finds what an agent has left behind: copies, states and finalizers of PublishedResources that were deleted or disabled, and of
// workspaces that do not bind the export any more.
type cleanup struct {
	config           *options.Config
	export           *exportReference
	service          client.Client
	serviceDiscovery *discovery.DiscoveryClient
	serviceMetadata  metadata.Interface
	endpoints        []*endpoints.Endpoint
}

// Cleanup lists what an agent has left behind, one line each, and removes it where that is asked for. It fails before it decides
// anything if an endpoint does not answer: what is behind it would look as if it were gone.
func Cleanup(ctx context.Context, config *options.Config, remove bool, out io.Writer) error {
	c, err := newCleanup(ctx, config)
	if err != nil {
		return err
	}
	alive, err := c.findLiving(ctx)
	if err != nil {
		return err
	}
	exported, err := c.exportedResources(ctx)
	if err != nil {
		return err
	}
	// Copies go first: a finalizer is what makes sure that they do.
	steps := []func() ([]leftover, error){
		func() ([]leftover, error) { return c.findCopies(ctx, alive) },
		func() ([]leftover, error) { return c.findStates(ctx, alive) },
	}
	for _, endpoint := range c.endpoints {
		steps = append(steps, func() ([]leftover, error) { return c.findFinalizers(ctx, endpoint, exported, alive) })
	}
	var failed []error
	for _, step := range steps {
		found, err := step()
		if err != nil {
			return err
		}
		for _, l := range found {
			if _, err := fmt.Fprintln(out, l.description); err != nil {
				return err
			}
			if !remove {
				continue
			}
			if err := l.remove(ctx); err != nil {
				failed = append(failed, fmt.Errorf("removing %s: %w", l.description, err))
			}
		}
		if len(failed) > 0 {
			return errors.Join(failed...)
		}
	}
	return nil
}

func newCleanup(ctx context.Context, config *options.Config) (*cleanup, error) {
	export, err := check(ctx, config)
	if err != nil {
		return nil, err
	}
	service := rest.CopyConfig(config.Service)
	service.QPS = -1 // the server's priority and fairness applies
	c := &cleanup{config: config, export: export}
	if c.service, err = client.New(service, client.Options{Scheme: scheme}); err != nil {
		return nil, err
	}
	if c.serviceDiscovery, err = discovery.NewDiscoveryClientForConfig(service); err != nil {
		return nil, err
	}
	if c.serviceMetadata, err = metadata.NewForConfig(metadata.ConfigFor(service)); err != nil {
		return nil, err
	}
	kcp, err := newCheckClient(config.Kcp, endpointSlices)
	if err != nil {
		return nil, err
	}
	slice := &apisv1alpha1.APIExportEndpointSlice{}
	if err := kcp.Get(ctx, client.ObjectKey{Name: config.EndpointSlice}, slice); err != nil {
		return nil, fmt.Errorf("reading APIExportEndpointSlice %s: %w", config.EndpointSlice, err)
	}
	return c, c.connect(ctx, slice)
}

// connect connects to the endpoints of the slice, and those that the agent has used before: objects behind others would look as if they
// were gone.
func (c *cleanup) connect(ctx context.Context, slice *apisv1alpha1.APIExportEndpointSlice) error {
	urls, err := endpointsOf(slice)
	if err != nil {
		return fmt.Errorf("nothing was decided: %w", err)
	}
	used, err := newRememberedEndpoints(c.service, c.config).all(ctx)
	if err != nil {
		return err
	}
	for _, url := range urls {
		used = append(used, strings.TrimSuffix(url, "/"))
	}
	slices.Sort(used)
	for _, url := range slices.Compact(used) {
		endpoint, err := endpoints.New(c.config.Kcp, url)
		if err != nil {
			return err
		}
		c.endpoints = append(c.endpoints, endpoint)
	}
	if len(c.endpoints) == 0 {
		return fmt.Errorf("nothing was decided: APIExportEndpointSlice %s has no endpoints, and the agent has used none before", slice.Name)
	}
	return nil
}

// exportedResources returns the resources of the export, without those that it claims.
func (c *cleanup) exportedResources(ctx context.Context) (map[schema.GroupResource]bool, error) {
	exports, err := newCheckClient(c.export.config, apiExports)
	if err != nil {
		return nil, err
	}
	export := &apisv1alpha1.APIExport{}
	if err := exports.Get(ctx, client.ObjectKey{Name: c.export.name}, export); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading APIExport %s: %w", c.export.name, err)
	}
	resources := map[schema.GroupResource]bool{}
	for _, name := range export.Spec.LatestResourceSchemas {
		_, resource, _ := strings.Cut(name, ".") // <prefix>.<resource>.<group>
		resources[schema.ParseGroupResource(resource)] = true
	}
	return resources, nil
}

// findLiving reads all primary objects of PublishedResources that are synced.
func (c *cleanup) findLiving(ctx context.Context) (*living, error) {
	exports, err := newCheckClient(c.export.config, apiExports)
	if err != nil {
		return nil, err
	}
	reader, err := dialects.NewReader(dialects.Options{Client: c.service, Selector: c.config.Selector, Group: dialects.ServiceGroup(exports, c.export.name)})
	if err != nil {
		return nil, err
	}
	publications, err := reader.List(ctx)
	if err != nil {
		return nil, err
	}
	alive := &living{
		services: map[schema.GroupResource]bool{}, workspaces: map[schema.GroupResource]bool{},
		copies: map[schema.GroupResource]map[syncer.Source]bool{}, states: map[string]bool{}, finalizers: map[string]bool{},
	}
	for _, p := range publications {
		if !p.Syncs() {
			continue
		}
		service, workspace, err := resolve(ctx, c.serviceDiscovery, c.service, p)
		if errors.Is(err, source.ErrNotServed) {
			continue // there can be no copies
		}
		if err != nil {
			return nil, fmt.Errorf("resolving PublishedResource %s: %w", p.Object.GetName(), err)
		}
		if err := c.addLiving(ctx, alive, service, workspace); err != nil {
			return nil, err
		}
	}
	return alive, nil
}

func (c *cleanup) addLiving(ctx context.Context, alive *living, service, workspace publication.Resource) error {
	copied := service.GroupVersionResource().GroupResource()
	alive.services[copied], alive.workspaces[workspace.GroupVersionResource().GroupResource()] = true, true
	if alive.copies[copied] == nil {
		alive.copies[copied] = map[syncer.Source]bool{}
	}
	for _, endpoint := range c.endpoints {
		client, err := endpoint.Metadata()
		if err != nil {
			return err
		}
		err = listMetadata(ctx, client.Resource(workspace.GroupVersionResource()).List, "", func(object *metav1.PartialObjectMetadata) {
			primary := syncer.Source{Cluster: logicalcluster.Of(object), NamespacedName: types.NamespacedName{Namespace: object.Namespace, Name: object.Name}}
			alive.copies[copied][primary] = true
			alive.states[stateName(workspace, primary)] = true
			alive.finalizers[syncer.RelatedFinalizer(c.config.AgentName, workspace, primary)] = true
		})
		if err != nil {
			return fmt.Errorf("nothing was decided, because %s could not be read at %s: %w", workspace.GroupVersionResource().GroupResource(), endpoint.URL, err)
		}
	}
	return nil
}

func stateName(workspace publication.Resource, primary syncer.Source) string {
	return state.SecretName(state.Primary{Cluster: primary.Cluster, GroupVersionKind: workspace.GroupVersionKind, NamespacedName: primary.NamespacedName})
}

// removeCopy deletes a copy, what was copied with it, and its state.
func (c *cleanup) removeCopy(ctx context.Context, service publication.Resource, key types.NamespacedName, primary syncer.Source) error {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(service.GroupVersionKind)
	if err := c.service.Get(ctx, key, object); err != nil {
		return client.IgnoreNotFound(err)
	}
	workspace, err := c.findWorkspaceResource(ctx, primary)
	if err != nil {
		return err
	}
	_, err = syncer.New(syncer.Config{
		AgentName: c.config.AgentName, Namespace: c.config.Namespace, Publication: &publication.Publication{},
		WorkspaceResource: workspace, ServiceResource: service, Service: c.service,
	}).DeleteOrphan(ctx, object)
	return err
}

// findWorkspaceResource finds the resource of a primary object whose PublishedResource may be gone: the one that its state is named for.
func (c *cleanup) findWorkspaceResource(ctx context.Context, primary syncer.Source) (publication.Resource, error) {
	candidates := map[string]publication.Resource{}
	for _, endpoint := range c.endpoints {
		discovery, err := endpoint.Discovery()
		if err != nil {
			return publication.Resource{}, err
		}
		resources, err := listable(discovery)
		if err != nil {
			return publication.Resource{}, err
		}
		for _, resource := range resources {
			candidates[stateName(resource, primary)] = resource
		}
	}
	for _, name := range slices.Sorted(maps.Keys(candidates)) {
		_, err := c.serviceMetadata.Resource(secrets.GroupVersionResource()).Namespace(c.config.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			return candidates[name], nil
		}
		if !apierrors.IsNotFound(err) {
			return publication.Resource{}, fmt.Errorf("reading state %s: %w", name, err)
		}
	}
	return publication.Resource{}, nil
}

// isNotListable reports whether the agent cannot have written a resource, because it may not even list it.
func isNotListable(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err)
}
