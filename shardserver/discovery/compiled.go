package discovery

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"

	"github.com/atoll-dev/atoll/internal/responserecorder"
)

// Recorder collects the aggregated discovery of the API groups that an API server installs, for a Source. It is the
// aggregated.ResourceManager of that server, which does not serve discovery itself.
type Recorder struct {
	aggregated.ResourceManager
	resources map[schema.GroupVersion][]apidiscoveryv2.APIResourceDiscovery
}

// NewRecorder returns a recorder without groups.
func NewRecorder() *Recorder {
	return &Recorder{
		ResourceManager: aggregated.NewResourceManager("apis"),
		resources:       map[schema.GroupVersion][]apidiscoveryv2.APIResourceDiscovery{},
	}
}

// AddGroupVersion implements aggregated.ResourceManager. It must not be called after the first request.
func (r *Recorder) AddGroupVersion(group string, version apidiscoveryv2.APIVersionDiscovery) {
	r.resources[schema.GroupVersion{Group: group, Version: version.Version}] = version.Resources
}

// Compiled is the discovery of the built-in resources, as the upstream handlers serve it. It is immutable.
type Compiled struct {
	// groups are in the order of unaggregated discovery, the core group first.
	groups []group
	// resources are those of all groups, without subresources, ordered.
	resources []schema.GroupResource
	// restriction is the restriction of a view, else nil.
	restriction Verbs
}

// group is an API group, aggregated and unaggregated.
type group struct {
	name     string
	versions []groupVersion
}

type groupVersion struct {
	name         string
	aggregated   []apidiscoveryv2.APIResourceDiscovery
	unaggregated []metav1.APIResource
}

func (c *Compiled) hasResource(resource schema.GroupResource) bool {
	_, found := slices.BinarySearchFunc(c.resources, resource, compareResources)
	return found
}

// listResources returns all resources and subresources of a version.
func (c *Compiled) listResources(version schema.GroupVersion) []metav1.APIResource {
	for _, group := range c.groups {
		for _, v := range group.versions {
			if group.name == version.Group && v.name == version.Version {
				return v.unaggregated
			}
		}
	}
	return nil
}

// Source reads the discovery of the built-in resources from the handlers that serve it, on the first request.
type Source struct {
	handler  http.Handler
	recorder *Recorder

	mu       sync.Mutex
	compiled *Compiled
}

// NewSource returns the source for an upstream handler, and what its server recorded.
func NewSource(handler http.Handler, recorder *Recorder) *Source {
	return &Source{handler: handler, recorder: recorder}
}

// Get sends a GET to the upstream handler and decodes the JSON response. The context is that of a request.
func (s *Source) Get(ctx context.Context, path, accept string, into any) error {
	raw, err := s.GetRaw(ctx, path, accept)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("decoding %s of the built-in resources: %w", path, err)
	}
	return nil
}

// GetRaw is Get without decoding.
func (s *Source) GetRaw(ctx context.Context, path, accept string) ([]byte, error) {
	req, err := http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodGet, path, nil)
	if err != nil {
		return nil, fmt.Errorf("getting %s of the built-in resources: %w", path, err)
	}
	req.Header.Set("Accept", accept)
	response := responserecorder.New()
	s.handler.ServeHTTP(response, req)
	if response.Status != http.StatusOK {
		return nil, fmt.Errorf("getting %s of the built-in resources: status %d: %s", path, response.Status, &response.Body)
	}
	return response.Body.Bytes(), nil
}

// Load returns the discovery of the built-in resources. It reads the upstream handlers until it succeeds once.
func (s *Source) Load(ctx context.Context) (*Compiled, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.compiled == nil {
		read, err := s.loadAll(ctx)
		if err != nil {
			return nil, err
		}
		s.compiled = read
	}
	return s.compiled, nil
}

func (s *Source) loadAll(ctx context.Context) (*Compiled, error) {
	var core metav1.APIVersions
	if err := s.Get(ctx, "/api", "application/json", &core); err != nil {
		return nil, err
	}
	var named metav1.APIGroupList
	if err := s.Get(ctx, "/apis", "application/json", &named); err != nil {
		return nil, err
	}
	coreGroup := metav1.APIGroup{}
	for _, version := range core.Versions {
		coreGroup.Versions = append(coreGroup.Versions, metav1.GroupVersionForDiscovery{Version: version})
	}
	compiled := &Compiled{}
	for _, known := range append([]metav1.APIGroup{coreGroup}, named.Groups...) {
		read, err := s.loadGroup(ctx, known)
		if err != nil {
			return nil, err
		}
		compiled.groups = append(compiled.groups, read)
		compiled.addResources(read)
	}
	return compiled, nil
}

func (s *Source) loadGroup(ctx context.Context, known metav1.APIGroup) (group, error) {
	read := group{name: known.Name}
	for _, version := range known.Versions {
		gv := schema.GroupVersion{Group: known.Name, Version: version.Version}
		var list metav1.APIResourceList
		if err := s.Get(ctx, PathOf(gv), "application/json", &list); err != nil {
			return group{}, err
		}
		read.versions = append(read.versions, groupVersion{name: gv.Version, aggregated: s.recorder.resources[gv], unaggregated: list.APIResources})
	}
	return read, nil
}

func (c *Compiled) addResources(added group) {
	for _, version := range added.versions {
		for _, listed := range version.unaggregated {
			resource := schema.GroupResource{Group: added.name, Resource: listed.Name}
			if position, found := slices.BinarySearchFunc(c.resources, resource, compareResources); !found && !strings.Contains(listed.Name, "/") {
				c.resources = slices.Insert(c.resources, position, resource)
			}
		}
	}
}

// PathOf returns the path of a version's resources, "/api/v1" or "/apis/<group>/<version>".
func PathOf(version schema.GroupVersion) string {
	if version.Group == "" {
		return "/api/" + version.Version
	}
	return "/apis/" + version.Group + "/" + version.Version
}
