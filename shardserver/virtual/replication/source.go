package replication

import (
	"context"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/cachedresources/replica"
)

// objectSource reads objects, from the storage of this shard or from replicas of another shard.
type objectSource interface {
	// serve serves a read in the logical cluster of the objects. If it returns an error, it has not responded.
	serve(w http.ResponseWriter, req *http.Request) error
	// getLabels returns the labels of one object.
	getLabels(ctx context.Context, name string) (labels.Set, error)
}

// newObjectSource returns the source of the objects for a consumer that has bound a schema, which determines how they are
// served, whatever definition the provider has. Objects of another shard come only
// from the shard that published the ClusterCachedResource.
func (w *Workspace) newObjectSource(ctx context.Context, exposed *exposedResource, schema types.UID) (objectSource, error) {
	local, err := w.config.Registry.IsLocal(ctx, logicalcluster.Of(exposed.Resource))
	if err != nil {
		return nil, err
	}
	if local {
		return localSource{w, exposed, schema}, nil
	}
	source, ok := replica.SourceOf(exposed.Resource)
	store := w.config.Replicas()
	if !ok || store == nil {
		return nil, fmt.Errorf("ClusterCachedResource %q of %q on another shard has no replicas on this shard", exposed.Resource.Name, logicalcluster.Of(exposed.Resource))
	}
	return remoteSource{store, source, schema}, nil
}

// localSource reads the objects of a logical cluster of this shard.
type localSource struct {
	workspace *Workspace
	exposed   *exposedResource
	schema    types.UID
}

func (l localSource) serve(w http.ResponseWriter, req *http.Request) error {
	published := l.exposed.Resource.Spec.GroupVersionResource
	return l.workspace.config.Originals.ServeOriginals(w, req, l.exposed.resource.WithVersion(published.Version), l.schema)
}

func (l localSource) getLabels(ctx context.Context, name string) (labels.Set, error) {
	gr := l.exposed.resource
	resource, err := l.workspace.config.Registry.Resolve(ctx, gr)
	if err != nil {
		return nil, err
	}
	if resource == nil {
		return nil, apierrors.NewNotFound(gr, name)
	}
	ctx = request.WithRequestInfo(ctx, &request.RequestInfo{APIGroup: gr.Group, Resource: gr.Resource})
	object, err := resource.Store.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	accessor, err := meta.Accessor(object)
	if err != nil {
		return nil, err
	}
	return accessor.GetLabels(), nil
}

// remoteSource reads replicas of the objects of another shard.
type remoteSource struct {
	store  *replica.Store
	source replica.Source
	schema types.UID
}

func (r remoteSource) serve(w http.ResponseWriter, req *http.Request) error {
	return r.store.Serve(w, req, r.source, r.schema)
}

func (r remoteSource) getLabels(ctx context.Context, name string) (labels.Set, error) {
	return r.store.Labels(ctx, r.source, name)
}
