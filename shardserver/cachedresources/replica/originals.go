package replica

import (
	"context"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/atoll-dev/atoll/shardserver/customresources/crdregistry"
)

// ServeOriginals serves a get, list or watch of the objects of a resource of the request's logical cluster, which is on this
// shard, as Serve does from replicas: with a schema that consumers have bound, of objects in the version in which they are
// published. The pool of the store is that of the shard's own objects. If it returns an error, nothing was written.
func (s *Store) ServeOriginals(w http.ResponseWriter, req *http.Request, published schema.GroupVersionResource, uid types.UID) error {
	gr := published.GroupResource()
	lease, err := s.registry.Acquire(req.Context(), gr, false)
	if err != nil {
		return err
	}
	if lease == nil {
		return apierrors.NewGenericServerResponse(http.StatusNotFound, "get", gr, "", "", 0, true)
	}
	defer lease.Release()
	if info, ok := request.RequestInfoFrom(req.Context()); ok && info.Verb == "watch" {
		ctx, cancel := context.WithCancel(req.Context())
		defer cancel()
		defer lease.OnChange(cancel)()
		req = req.WithContext(ctx)
	}
	key := storageKey{gr, lease.CRD.Storage.Segment()}
	h, done, err := s.acquire(key)
	if err != nil {
		return err
	}
	defer done()
	compiled, err := s.getCompiled(req.Context(), h, key, definitionKey{uid, publisherOf(lease.CRD, published.Version), published.Version})
	if err != nil {
		return err
	}
	return compiled.ServeReads(w, req)
}

// publisherOf returns the definition that converts stored objects to a published version; nil if all are stored in it.
func publisherOf(crd *crdregistry.CompiledCRD, version string) *crdregistry.CompiledCRD {
	if len(crd.Spec.Versions) == 1 && crd.Spec.Versions[0].Name == version {
		return nil
	}
	return crd
}

// compile compiles the definition of a key for a storage.
func (s *Store) compile(ctx context.Context, h *openStorage, storage storageKey, key definitionKey) (*crdregistry.CompiledCRD, error) {
	if key.publisher == nil {
		return s.registry.CompileFor(ctx, storage.resource, key.schema, h.storage, nil)
	}
	handlers, err := key.publisher.Handlers()
	if err != nil {
		return nil, err
	}
	publication := handlers.Views.Publication(key.version)
	if publication == nil {
		return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("%s is currently unavailable: its provider does not serve the published version %s", storage.resource, key.version))
	}
	return s.registry.CompileFor(ctx, storage.resource, key.schema, h.storage, publication)
}
