package export

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	"github.com/atoll-dev/atoll/shardserver/controller"
)

// schemaKeys returns the exports that offer a new schema.
func (c *exportController) schemaKeys(event watch.Event) []controller.Request {
	schema, ok := event.Object.(*apisv1alpha1.APIResourceSchema)
	if !ok || event.Type != watch.Added {
		return nil
	}
	return controller.RequestsForObjects(c.exports, logicalcluster.Of(schema), func(export *apisv1alpha2.APIExport) bool {
		return slices.ContainsFunc(export.Spec.Resources, func(resource apisv1alpha2.ResourceSchema) bool { return resource.Schema == schema.Name })
	})
}

// recordServedKinds sends an empty patch if the record of an export lacks kinds that it offers, because it was written before their
// schemas or by an older version of the server. Admission adds them.
func (c *exportController) recordServedKinds(ctx context.Context, export *apisv1alpha2.APIExport) error {
	recorded := apiindex.ParseServedKinds(export)
	complete, err := recorded.With(ctx, c.cfg.Exports, logicalcluster.Of(export), export.Spec)
	if err != nil || len(complete) == len(recorded) {
		return err
	}
	if err := c.cfg.Clients.Typed.Patch(ctx, export, client.RawPatch(types.MergePatchType, []byte("{}"))); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("recording the kinds of APIExport %q: %w", export.Name, err)
	}
	return nil
}
