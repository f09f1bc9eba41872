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

// apiSetFinder builds the API set of a slice: one read-only resource.
type apiSetFinder struct {
	workspace *Workspace
	source    *discovery.Source
}

// Resolve implements discovery.APISetResolver.
func (f *apiSetFinder) Resolve(ctx context.Context) (*discovery.APISet, error) {
	_, exposed, err := f.workspace.findForRequest(ctx)
	if err != nil {
		return nil, err
	}
	compiled, err := f.source.Read(ctx)
	if err != nil {
		return nil, err
	}
	set := &discovery.APISet{Compiled: compiled.Restrict(discovery.Verbs{})}
	if exposed == nil {
		return set, nil
	}
	described, err := f.workspace.config.Exports.GetSchema(ctx, logicalcluster.Of(exposed.Export), exposed.Entry.Schema)
	if apierrors.IsNotFound(err) {
		return set, nil
	}
	if err != nil {
		return nil, err
	}
	object, err := apiindex.DiscoveryDefinition(described)
	if err != nil {
		return nil, err
	}
	object.Spec.Subresources = nil
	for i := range object.Spec.Versions {
		object.Spec.Versions[i].Subresources = nil
	}
	encoded, err := json.Marshal([]any{object.Spec, object.Status.AcceptedNames})
	if err != nil {
		return nil, fmt.Errorf("hashing APIResourceSchema %q: %w", described.Name, err)
	}
	set.Definitions = []discovery.Definition{{Content: sha256.Sum256(encoded), ReadOnly: true, Object: object}}
	return set, nil
}

// documents returns the handler of discovery and OpenAPI of slices. Documents that do not depend on the slice come from
// content.
func (w *Workspace) documents(content http.Handler) http.Handler {
	wholeDiscovery, wholeOpenAPI := w.config.Documents()
	sets := &apiSetFinder{w, wholeOpenAPI.Source()}
	stock := http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		switch path := strings.TrimSuffix(req.URL.Path, "/"); {
		case path == "/version", strings.HasPrefix(path, "/openapi/v3/"):
			content.ServeHTTP(rw, virtual.InCluster(req))
		default:
			w.fail(rw, req, notFound(req))
		}
	})
	served := wholeOpenAPI.View(sets, wholeDiscovery.View(sets, stock))
	return http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		if strings.TrimSuffix(req.URL.Path, "/") == "/openapi/v2" {
			w.fail(rw, req, notFound(req)) // clients fall back to version 3
			return
		}
		served.ServeHTTP(rw, req)
	})
}

func notFound(req *http.Request) error {
	return apierrors.NewGenericServerResponse(http.StatusNotFound, strings.ToLower(req.Method), schema.GroupResource{}, "", "", 0, true)
}
