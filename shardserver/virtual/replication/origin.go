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

// origin is where objects are read from: where they are, or copies of them.
type origin interface {
	// serve answers a read in the logical cluster that offers the objects. On an error nothing was written.
	serve(w http.ResponseWriter, req *http.Request) error
	// labels returns those of one object.
	labels(ctx context.Context, name string) (labels.Set, error)
}

// from returns where objects are read from, for a consumer that has bound a schema. What comes from another shard is that
// of the one shard which the offer came from, and of no other that may say to have the same.
func (w *Workspace) from(ctx context.Context, what *shown, schema types.UID) (origin, error) {
	here, err := w.config.Registry.Here(ctx, logicalcluster.Of(what.Resource))
	if err != nil {
		return nil, err
	}
	if here {
		return local{w, what}, nil
	}
	source, ok := replica.SourceOf(what.Resource)
	store := w.config.Copies()
	if !ok || store == nil {
		return nil, fmt.Errorf("ClusterCachedResource %q of %q on another shard offers what cannot be followed", what.Resource.Name, logicalcluster.Of(what.Resource))
	}
	return elsewhere{store, source, schema}, nil
}

// local reads the objects of a logical cluster of this shard.
type local struct {
	workspace *Workspace
	what      *shown
}

func (l local) serve(w http.ResponseWriter, req *http.Request) error {
	l.workspace.content.ServeHTTP(w, req)
	return nil
}

func (l local) labels(ctx context.Context, name string) (labels.Set, error) {
	gr := l.what.resource
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

// elsewhere reads copies of what another shard has.
type elsewhere struct {
	store  *replica.Store
	source replica.Source
	schema types.UID
}

func (e elsewhere) serve(w http.ResponseWriter, req *http.Request) error {
	return e.store.Serve(w, req, e.source, e.schema)
}

func (e elsewhere) labels(ctx context.Context, name string) (labels.Set, error) {
	return e.store.Labels(ctx, e.source, name)
}
