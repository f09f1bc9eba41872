package replication

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	"github.com/atoll-dev/atoll/shardserver/discovery"
	"github.com/atoll-dev/atoll/shardserver/virtual"
)

// apiSetResolver builds the API set of a slice: one read-only resource.
type apiSetResolver struct {
	workspace *Workspace
	source    *discovery.Source
}

// Resolve implements discovery.APISetResolver.
func (a *apiSetResolver) Resolve(ctx context.Context) (*discovery.APISet, error) {
	_, exposed, err := a.workspace.findForRequest(ctx)
	if err != nil {
		return nil, err
	}
	compiled, err := a.source.Load(ctx)
	if err != nil {
		return nil, err
	}
	set := &discovery.APISet{Compiled: compiled.Restrict(discovery.Verbs{})}
	if exposed == nil {
		return set, nil
	}
	resourceSchema, err := a.workspace.config.Exports.GetSchema(ctx, logicalcluster.Of(exposed.Export), exposed.Entry.Schema)
	if apierrors.IsNotFound(err) {
		return set, nil
	}
	if err != nil {
		return nil, err
	}
	object, err := apiindex.DiscoveryDefinition(resourceSchema)
	if err != nil {
		return nil, err
	}
	object.Spec.Subresources = nil
	for i := range object.Spec.Versions {
		object.Spec.Versions[i].Subresources = nil
	}
	encoded, err := json.Marshal([]any{object.Spec, object.Status.AcceptedNames})
	if err != nil {
		return nil, fmt.Errorf("hashing APIResourceSchema %q: %w", resourceSchema.Name, err)
	}
	set.Definitions = []discovery.Definition{{Content: sha256.Sum256(encoded), ReadOnly: true, Object: object}}
	return set, nil
}

// newDocumentHandler returns the handler of discovery and OpenAPI of slices. Documents that do not depend on the slice come from
// content.
func (w *Workspace) newDocumentHandler(content http.Handler) http.Handler {
	shardDiscovery, shardOpenAPI := w.config.Documents()
	resolver := &apiSetResolver{w, shardOpenAPI.Source()}
	stock := http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		switch path := strings.TrimSuffix(req.URL.Path, "/"); {
		case path == "/version", strings.HasPrefix(path, "/openapi/v3/"):
			content.ServeHTTP(rw, virtual.InCluster(req))
		default:
			w.writeError(rw, req, newNotFoundError(req))
		}
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

func newNotFoundError(req *http.Request) error {
	return apierrors.NewGenericServerResponse(http.StatusNotFound, strings.ToLower(req.Method), schema.GroupResource{}, "", "", 0, true)
}
