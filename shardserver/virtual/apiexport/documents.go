package apiexport

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/internal/subresources"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	"github.com/atoll-dev/atoll/shardserver/discovery"
	discoverydocuments "github.com/atoll-dev/atoll/shardserver/discovery/documents"
	"github.com/atoll-dev/atoll/shardserver/virtual"
)

// errNoExport indicates a bug: all requests come through the virtual workspace of an export.
var errNoExport = errors.New("no export in the request")

// limits bounds the cache of definitions by count and by the size of their schemas.
var limits = discoverydocuments.Limits{Count: 1024, Bytes: 16 << 20, Builds: 2}

// apiSetResolver builds the API sets of exports for discovery and OpenAPI documents.
type apiSetResolver struct {
	apiSource
	source *discovery.Source
	// definitions are cached by the UID of the immutable schema.
	definitions *discoverydocuments.Cache[types.UID, *discovery.Definition]
}

func newAPISetResolver(from apiSource, source *discovery.Source) *apiSetResolver {
	return &apiSetResolver{apiSource: from, source: source, definitions: discoverydocuments.New[types.UID, *discovery.Definition](limits)}
}

// Resolve implements discovery.APISetResolver.
func (asr *apiSetResolver) Resolve(ctx context.Context) (*discovery.APISet, error) {
	set, err := apiSetFrom(ctx, asr.apiSource)
	if err != nil {
		return nil, err
	}
	resources, err := set.list(ctx)
	if err != nil {
		return nil, err
	}
	compiled, err := asr.source.Load(ctx)
	if err != nil {
		return nil, err
	}
	result, selected := &discovery.APISet{}, discovery.Verbs{}
	for _, o := range resources {
		if o.schema == nil {
			selected[o.GroupResource] = o.verbs
			selected[schema.GroupResource{Group: o.Group, Resource: o.Resource + "/" + statusSubresource}] = o.status
			for subresource := range o.subresources {
				selected[schema.GroupResource{Group: o.Group, Resource: o.Resource + "/" + subresource}] = allVerbs
			}
			continue
		}
		definition, err := asr.getDefinition(ctx, o.schema)
		if err != nil {
			// Conditions report the invalid schema; the rest of the API is served.
			klog.FromContext(ctx).V(2).Info("Leaving an invalid schema out of discovery", "schema", o.schema.Name, "export", set.name.Name, "err", err)
			continue
		}
		described := *definition
		described.ReadOnly = o.virtual
		if described.Subresources, err = asr.describeSubresources(ctx, o); err != nil {
			return nil, err
		}
		if asr.view != nil && o.isOwn() {
			if described, err = asr.view.Describe(ctx, set.export, described); err != nil {
				return nil, err
			}
		}
		result.Definitions = append(result.Definitions, described)
	}
	result.Compiled = compiled.Restrict(selected)
	slices.SortFunc(result.Definitions, func(a, b discovery.Definition) int { return strings.Compare(a.Object.Name, b.Object.Name) })
	return result, nil
}

// describeSubresources returns the custom subresources that are claimed of a resource of another export, with the claimed verbs.
func (a apiSource) describeSubresources(ctx context.Context, o *apiResource) ([]discovery.Subresource, error) {
	if o.definer == nil || len(o.subresources) == 0 {
		return nil, nil
	}
	return discovery.SubresourcesOf(ctx, a.exports, o.definer, o.GroupResource, func(entry *apisv1alpha2.ResourceSchema, _ string) []string {
		_, subresource := subresources.Split(*entry)
		if claim := o.subresources[subresource]; claim != nil {
			return claimedVerbs(claim)
		}
		return nil
	})
}

// getDefinition returns the definition of a schema for documents.
func (asr *apiSetResolver) getDefinition(ctx context.Context, resourceSchema *apisv1alpha1.APIResourceSchema) (*discovery.Definition, error) {
	return asr.definitions.Get(ctx, resourceSchema.UID, func() (*discovery.Definition, int64, error) {
		object, err := apiindex.DiscoveryDefinition(resourceSchema)
		if err != nil {
			return nil, 0, err
		}
		encoded, err := json.Marshal([]any{object.Spec, object.Status.AcceptedNames})
		if err != nil {
			return nil, 0, fmt.Errorf("hashing APIResourceSchema %q: %w", resourceSchema.Name, err)
		}
		return &discovery.Definition{Content: sha256.Sum256(encoded), Object: object}, int64(5 * len(encoded)), nil // estimate of the decoded size
	})
}

// newDocumentHandler returns the handler of discovery and OpenAPI of exports. Documents that do not depend on the export come from
// content.
func (w *workspace) newDocumentHandler(content http.Handler) http.Handler {
	shardDiscovery, shardOpenAPI := w.config.Documents()
	resolver := newAPISetResolver(w.apis, shardOpenAPI.Source())
	stock := http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		path := strings.TrimSuffix(req.URL.Path, "/")
		switch {
		case path == "/api":
			if set, err := resolver.Resolve(req.Context()); err != nil || !set.Serves(schema.GroupVersion{Version: "v1"}) {
				w.writeError(rw, req, firstError(err, newNotFoundError(req)))
				return
			}
		case path == "/version", strings.HasPrefix(path, "/openapi/v3/"):
		default:
			w.writeError(rw, req, newNotFoundError(req))
			return
		}
		// The wildcard leaves out the other APIs of the consumer.
		wildcard := logicalcluster.With(req.Context(), logicalcluster.Wildcard)
		content.ServeHTTP(rw, virtual.InCluster(req.WithContext(wildcard)))
	})
	served := shardOpenAPI.View(resolver, shardDiscovery.View(resolver, stock))
	return http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		if strings.TrimSuffix(req.URL.Path, "/") == "/openapi/v2" {
			w.writeError(rw, req, newNotFoundError(req)) // clients fall back to version 3
			return
		}
		served.ServeHTTP(rw, req)
	})
}

func firstError(err, fallback error) error {
	if err != nil {
		return err
	}
	return fallback
}

func newNotFoundError(req *http.Request) error {
	return apierrors.NewGenericServerResponse(http.StatusNotFound, strings.ToLower(req.Method), schema.GroupResource{}, "", "", 0, true)
}
