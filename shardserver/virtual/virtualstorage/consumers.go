package virtualstorage

import (
	"context"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
	"github.com/atoll-dev/atoll/shardserver/customresources/crdstorage"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// consumers are the logical clusters of this shard that bind a resource of an export.
type consumers struct {
	reader *storage.Reader[*apisv1alpha2.APIBinding]
	index  *bindings.Index
	export bindings.ExportKey
	gr     schema.GroupResource
	// allows returns the logical clusters that allow the request; nil if all that bind the resource do.
	allows func(context.Context) (sets.Set[logicalcluster.Name], error)
}

var _ crdstorage.Audience = consumers{}

// List implements crdstorage.Audience.
func (c consumers) List(ctx context.Context) ([]logicalcluster.Name, error) {
	clusters, _, err := c.list(ctx)
	return clusters, err
}

// Version implements crdstorage.Audience.
func (c consumers) Version() (version uint64, changed <-chan struct{}) {
	return c.index.VirtualVersion()
}

// list returns the logical clusters in order, and the schema that the first of them has bound. It reads consistently: the
// index may lag behind the objects.
func (c consumers) list(ctx context.Context) (clusters []logicalcluster.Name, uid types.UID, err error) {
	key, value := apiindex.ExportLabel(c.export)
	ctx = logicalcluster.With(crdstorage.WithoutProjection(ctx), logicalcluster.Wildcard)
	all, err := c.reader.ListLatest(ctx, "", labels.SelectorFromSet(labels.Set{key: value}))
	if err != nil {
		return nil, "", err
	}
	var allowed sets.Set[logicalcluster.Name]
	if c.allows != nil {
		if allowed, err = c.allows(ctx); err != nil {
			return nil, "", err
		}
	}
	for _, binding := range all { // in the order of their logical clusters
		schemaUID, ok := c.boundSchema(binding)
		if c.allows != nil && !allowed.Has(logicalcluster.Of(binding)) {
			continue
		}
		if cluster := logicalcluster.Of(binding); ok && !slices.Contains(clusters[max(0, len(clusters)-1):], cluster) {
			clusters = append(clusters, cluster)
			if uid == "" {
				uid = schemaUID
			}
		}
	}
	return clusters, uid, nil
}

// boundSchema returns the UID of the schema with which a binding binds the resource of the export.
func (c consumers) boundSchema(binding *apisv1alpha2.APIBinding) (types.UID, bool) {
	reference := binding.Spec.Reference.Export
	if reference == nil || reference.Name != c.export.Name || binding.Status.APIExportClusterName != c.export.Cluster.String() {
		return "", false
	}
	for _, bound := range binding.Status.BoundResources {
		if bound.Group == c.gr.Group && bound.Resource == c.gr.Resource && len(bound.StorageVersions) == 0 {
			return types.UID(bound.Schema.UID), true
		}
	}
	return "", false
}

// checkResumable fails if a watch request resumes from before a change of the consumers.
func (c consumers) checkResumable(req *http.Request) error {
	info, ok := request.RequestInfoFrom(req.Context())
	since, err := storage.ParseRevision(req.URL.Query().Get("resourceVersion"))
	if !ok || info.Verb != "watch" || err != nil || since == 0 || req.URL.Query().Get("sendInitialEvents") == "true" {
		return nil
	}
	if version, _ := c.Version(); version > since {
		return apierrors.NewResourceExpired("the consumers of the export have changed: list the objects again")
	}
	return nil
}
