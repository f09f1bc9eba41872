package admission

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
)

var migrations = schema.GroupResource{Group: "migration.kcp.io", Resource: "logicalclustermigrations"}

// refuseMigrations refuses to create requests for the migration of logical clusters, which no controller acts on.
type refuseMigrations struct{ *admission.Handler }

func newRefuseMigrations(Config) admission.Interface {
	return refuseMigrations{admission.NewHandler(admission.Create)}
}

// Validate implements admission.ValidationInterface.
func (refuseMigrations) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != migrations || a.GetSubresource() != "" {
		return nil
	}
	return forbid(a, "logical clusters cannot be moved between shards yet; create the workspace on the other shard (spec.location.selector), and copy its objects")
}
