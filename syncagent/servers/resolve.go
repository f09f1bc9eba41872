package servers

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/atoll-dev/atoll/internal/workspaces"
	"github.com/atoll-dev/atoll/syncagent/projection"
	"github.com/atoll-dev/atoll/syncagent/publication"
	"github.com/atoll-dev/atoll/syncagent/source"
)

// Resolve finds the resource of a publication on both sides.
func Resolve(ctx context.Context, discovery source.Discovery, reader client.Reader, p *publication.Publication) (service, workspace workspaces.Resource, err error) {
	definition, err := source.Definition(ctx, discovery, reader, p.Spec.Resource.APIGroup, p.Spec.Resource.Kind)
	if err != nil {
		return service, workspace, err
	}
	projected, err := projection.Project(definition, &p.Spec)
	if err != nil {
		return service, workspace, err
	}
	service, workspace = projection.Resources(definition, projected, &p.Spec)
	return service, workspace, nil
}
