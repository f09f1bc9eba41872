package crdregistry

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	apiextensionsinternal "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/finalizer"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/atoll-dev/atoll/shardserver/apis/apiextensions"
	"github.com/atoll-dev/atoll/shardserver/customresources/crdstorage"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// CompiledCRD is what equal definitions over one storage share, in any number of logical clusters. It is immutable, except
// for the handlers, which it compiles on first use. The registry closes it when its last reference is released.
type CompiledCRD struct {
	// Hash identifies it: equal definitions have equal hashes.
	Hash  apiextensions.Hash
	Spec  apiextensionsinternal.CustomResourceDefinitionSpec
	Names apiextensionsinternal.CustomResourceDefinitionNames
	// PathSegmentNames allows every name of an object that a path segment can hold, which definitions cannot express.
	PathSegmentNames bool
	// Storage holds the objects. It stays open at least until the CompiledCRD is closed.
	Storage *crdstorage.Storage
	// Publication converts stored objects to a version that the definition knows; nil if it knows all of them.
	Publication *crdstorage.Publication
	// Resource is the stored resource in its preferred version, as the shard's controllers use it in every logical cluster.
	Resource *storage.Resource

	compile  Compiler
	mu       sync.Mutex
	handlers *Handlers
	closed   bool
}

// Compiler creates the handlers of a CompiledCRD.
type Compiler func(*CompiledCRD) (*Handlers, error)

// Handlers serve the requests of one CompiledCRD.
type Handlers struct {
	// Stock is the upstream handler of custom resources. It serves every request.
	Stock http.Handler
	// Instances is the upstream registry of the objects.
	Instances finalizer.ListerCollectionDeleter
	// Reads serves those reads that need no decoding.
	Reads *crdstorage.ReadHandler
	// Views are the storages that the stock handler works on.
	Views *crdstorage.Views
}

// newCRD returns the compiled CRD of a definition over a storage.
func (r *Registry) newCRD(d parsedDefinition, store *crdstorage.Storage) *CompiledCRD {
	return &CompiledCRD{
		Hash:             d.hash,
		Spec:             d.object.Spec,
		Names:            d.object.Status.AcceptedNames,
		PathSegmentNames: d.pathSegmentNames,
		Storage:          store,
		Resource:         newResource(d.object, store.Store(), store.Prefix()),
		compile:          r.Compile,
	}
}

// GroupResource returns the resource that the definitions define.
func (c *CompiledCRD) GroupResource() schema.GroupResource { return c.Resource.GVR.GroupResource() }

// Definition returns a v1 definition that stands for all definitions with this hash: their specification, their accepted
// names, and the conditions of an established definition. Its UID is the hash. Its parts are shared, callers must not
// modify them.
func (c *CompiledCRD) Definition() (*apiextensionsv1.CustomResourceDefinition, error) {
	canonical := &apiextensionsinternal.CustomResourceDefinition{Spec: c.Spec}
	canonical.Name = c.GroupResource().String()
	canonical.UID = types.UID(c.Hash.String())
	canonical.Status.AcceptedNames = c.Names
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

// Handlers returns the handlers, compiling them on the first call. It fails after Close.
func (c *CompiledCRD) Handlers() (*Handlers, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.handlers != nil {
		return c.handlers, nil
	}
	if c.closed {
		return nil, fmt.Errorf("the definition of %s is deleted", c.GroupResource())
	}
	handlers, err := c.compile(c)
	if err != nil {
		return nil, fmt.Errorf("compiling the definition of %s: %w", c.GroupResource(), err)
	}
	c.handlers = handlers
	return handlers, nil
}

// ServeReads serves a get, list or watch of the objects of the context's logical cluster. If it returns an error, nothing
// was written.
func (c *CompiledCRD) ServeReads(w http.ResponseWriter, req *http.Request) error {
	handlers, err := c.Handlers()
	if err != nil {
		return err
	}
	if !handlers.Reads.Serve(w, req) {
		handlers.Stock.ServeHTTP(w, req)
	}
	return nil
}

// IsClosed reports whether the last reference is released.
func (c *CompiledCRD) IsClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// Close closes the handlers. Watches end, and requests in flight fail.
func (c *CompiledCRD) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.handlers != nil {
		c.handlers.Views.Close()
		c.handlers = nil
	}
}

// preferredVersion returns the version that discovery prefers: of the served versions (of all, if none is served), the
// first in Kubernetes' order of versions.
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

// newResource describes the resource of a definition to the shard's controllers.
func newResource(object *apiextensionsinternal.CustomResourceDefinition, store storage.Store, prefix string) *storage.Resource {
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
