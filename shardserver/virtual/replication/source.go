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

// objectSource is where objects are read from: where they are, or copies of them.
type objectSource interface {
	// serve answers a read in the logical cluster that offers the objects. On an error nothing was written.
	serve(w http.ResponseWriter, req *http.Request) error
	// labels returns those of one object.
	labels(ctx context.Context, name string) (labels.Set, error)
}

// sourceFor returns where objects are read from, for a consumer that has bound a schema. What comes from another shard is that
// of the one shard which the offer came from, and of no other that may say to have the same.
func (w *Workspace) sourceFor(ctx context.Context, exposed *exposedResource, schema types.UID) (objectSource, error) {
	here, err := w.config.Registry.Here(ctx, logicalcluster.Of(exposed.Resource))
	if err != nil {
		return nil, err
	}
	if here {
		return localSource{w, exposed}, nil
	}
	source, ok := replica.SourceOf(exposed.Resource)
	store := w.config.Replicas()
	if !ok || store == nil {
		return nil, fmt.Errorf("ClusterCachedResource %q of %q on another shard offers what cannot be followed", exposed.Resource.Name, logicalcluster.Of(exposed.Resource))
	}
	return remoteSource{store, source, schema}, nil
}

// localSource reads the objects of a logical cluster of this shard.
type localSource struct {
	workspace *Workspace
	exposed   *exposedResource
}

func (l localSource) serve(w http.ResponseWriter, req *http.Request) error {
	l.workspace.content.ServeHTTP(w, req)
	return nil
}

func (l localSource) labels(ctx context.Context, name string) (labels.Set, error) {
	gr := l.exposed.resource
	resource, err := l.workspace.config.Registry.For(ctx, gr)
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

// remoteSource reads copies of what another shard has.
type remoteSource struct {
	store  *replica.Store
	source replica.Source
	schema types.UID
}

func (e remoteSource) serve(w http.ResponseWriter, req *http.Request) error {
	return e.store.Serve(w, req, e.source, e.schema)
}

func (e remoteSource) labels(ctx context.Context, name string) (labels.Set, error) {
	return e.store.Labels(ctx, e.source, name)
}
