package endpoints

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// KindOf returns the kind that a reference to a slice names.
func KindOf(reference corev1.TypedLocalObjectReference) schema.GroupKind {
	kind := schema.GroupKind{Kind: reference.Kind}
	if reference.APIGroup != nil {
		kind.Group = *reference.APIGroup
	}
	return kind
}

// Read returns status.endpoints of an endpoint slice of any kind in a logical cluster. In those of other shards, the kind has to
// be one that shards publish.
func Read(ctx context.Context, registry *storage.Registry, cluster logicalcluster.Name, reference corev1.TypedLocalObjectReference) ([]Endpoint, error) {
	kind := KindOf(reference)
	ctx = logicalcluster.With(ctx, cluster)
	resource, err := registry.ResolveKind(ctx, kind)
	if err != nil {
		return nil, err
	}
	if resource == nil {
		return nil, fmt.Errorf("the workspace of the export does not serve %s", kind)
	}
	object, err := readSlice(ctx, registry, resource, reference.Name)
	if err != nil {
		return nil, fmt.Errorf("reading the endpoint slice: %w", err)
	}
	text, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	var slice struct {
		Status struct {
			Endpoints []Endpoint `json:"endpoints"`
		} `json:"status"`
	}
	if err := json.Unmarshal(text, &slice); err != nil {
		return nil, fmt.Errorf("decoding the endpoint slice: %w", err)
	}
	return slice.Status.Endpoints, nil
}

func readSlice(ctx context.Context, registry *storage.Registry, resource *storage.Resource, name string) (runtime.Object, error) {
	gr := resource.GVR.GroupResource()
	if compiled, err := registry.Get(gr); err == nil && compiled == resource {
		return storage.NewReader[runtime.Object](registry, gr).Global().GetLatest(ctx, "", name)
	}
	ctx = request.WithRequestInfo(request.WithNamespace(ctx, ""), &request.RequestInfo{APIGroup: gr.Group, Resource: gr.Resource})
	return resource.Store.Get(ctx, name, &metav1.GetOptions{ResourceVersion: "0"}) // from the watch cache: it is read again and again
}
