package customresources

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	apiextensionsinternal "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/atoll-dev/atoll/shardserver/apis/apiextensions"
	"github.com/atoll-dev/atoll/shardserver/customresources/crdstorage"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// Content is what equal definitions share, in whatever logical clusters they are. It is immutable but for what it
// compiles on first use. The catalog drops it with its last user.
type Content struct {
	// Hash is its identity.
	Hash apiextensions.Hash

	spec  apiextensionsinternal.CustomResourceDefinitionSpec
	names apiextensionsinternal.CustomResourceDefinitionNames
	// anyPathNames says that names of objects may be all that a path can hold, which definitions cannot say.
	anyPathNames bool
	// segment tells its storage from others of the resource.
	segment string
	// store holds its objects. It stays open as long as the content is in use.
	store *crdstorage.Storage
	// resource is what the shard's own parts see, the same in every logical cluster.
	resource *storage.Resource
	// users are the definitions with this content and the requests that use it. It rises under the catalog's lock only.
	users atomic.Int64

	compile  func(*Content) (*compiled, error)
	mu       sync.Mutex
	compiled *compiled
	dropped  bool
}

// GroupResource is what the content defines.
func (c *Content) GroupResource() schema.GroupResource { return c.resource.GVR.GroupResource() }

// Resource is the stored resource in its preferred version.
func (c *Content) Resource() *storage.Resource { return c.resource }

// Definition returns the content as a definition of version v1: specification, accepted names, and the conditions of a
// definition that is served. It stands for all definitions with this content; its UID is the hash. Each call makes a
// new one, whose parts are shared: read-only.
func (c *Content) Definition() (*apiextensionsv1.CustomResourceDefinition, error) {
	canonical := &apiextensionsinternal.CustomResourceDefinition{Spec: c.spec}
	canonical.Name = c.GroupResource().String()
	canonical.UID = types.UID(c.Hash.String())
	canonical.Status.AcceptedNames = c.names
	for _, condition := range []apiextensionsinternal.CustomResourceDefinitionConditionType{apiextensionsinternal.NamesAccepted, apiextensionsinternal.Established} {
		canonical.Status.Conditions = append(canonical.Status.Conditions, apiextensionsinternal.CustomResourceDefinitionCondition{
			Type: condition, Status: apiextensionsinternal.ConditionTrue,
		})
	}
	external := &apiextensionsv1.CustomResourceDefinition{}
	if err := legacyscheme.Scheme.Convert(canonical, external, nil); err != nil {
		return nil, fmt.Errorf("converting the definition of %s: %w", c.GroupResource(), err)
	}
	return external, nil
}

// get returns what serves requests, made now if nobody asked before.
func (c *Content) get() (*compiled, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.compiled != nil {
		return c.compiled, nil
	}
	if c.dropped {
		return nil, fmt.Errorf("the definition of %s is gone", c.GroupResource())
	}
	made, err := c.compile(c)
	if err != nil {
		return nil, fmt.Errorf("compiling the definition of %s: %w", c.GroupResource(), err)
	}
	c.compiled = made
	return made, nil
}

// drop ends what was compiled.
func (c *Content) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropped = true
	if c.compiled != nil {
		c.compiled.close()
		c.compiled = nil
	}
}

// preferredVersion returns the version that a cluster with this content would offer first: of those served (of all, if
// none is), the first in the order of Kubernetes.
func preferredVersion(spec *apiextensionsinternal.CustomResourceDefinitionSpec) string {
	var served, all []string
	for _, v := range spec.Versions {
		all = append(all, v.Name)
		if v.Served {
			served = append(served, v.Name)
		}
	}
	if len(served) == 0 {
		served = all
	}
	slices.SortFunc(served, func(a, b string) int { return -version.CompareKubeAwareVersionStrings(a, b) })
	if len(served) == 0 {
		return ""
	}
	return served[0]
}

// resourceOf describes what a definition brings to the shard's own parts.
func resourceOf(object *apiextensionsinternal.CustomResourceDefinition, store storage.Store, prefix string) *storage.Resource {
	gv := schema.GroupVersion{Group: object.Spec.Group, Version: preferredVersion(&object.Spec)}
	kind := object.Status.AcceptedNames.Kind
	if kind == "" {
		kind = object.Spec.Names.Kind
	}
	return &storage.Resource{
		GVR:        gv.WithResource(object.Spec.Names.Plural),
		Kind:       gv.WithKind(kind),
		Namespaced: object.Spec.Scope == apiextensionsinternal.NamespaceScoped,
		Prefix:     "/" + strings.Trim(prefix, "/"),
		Store:      store,
		Deletable:  true,
	}
}
