package kubernetes

import (
	"context"
	"errors"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/admission/rules"
	"github.com/atoll-dev/atoll/shardserver/apiexport/binding"
	ownapiextensions "github.com/atoll-dev/atoll/shardserver/apis/apiextensions"
)

// noOverlappingGVRName is the plug-in that prevents conflicts between definitions and bindings.
const NoOverlappingGVRName = "apis.kcp.io/CRDNoOverlappingGVR"

// crdNoOverlapping refuses definitions of resources that are bound in the logical cluster, and reserves the resource
// for definitions that it admits. Without the plug-in such a definition is created but not served.
type crdNoOverlapping struct {
	*admission.Handler
	reserver *binding.Reserver
}

// NewCRDNoOverlapping returns the plug-in apis.kcp.io/CRDNoOverlappingGVR.
func NewCRDNoOverlapping(config rules.Config) admission.Interface {
	return &crdNoOverlapping{admission.NewHandler(admission.Create), config.Reserver}
}

// Validate implements admission.ValidationInterface.
func (c *crdNoOverlapping) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != ownapiextensions.Definitions || a.GetSubresource() != "" {
		return nil
	}
	if cluster, ok := logicalcluster.From(ctx); !ok || cluster.IsSystem() {
		return nil // definitions in system clusters are not served there
	}
	definition, err := rules.ObjectOf[*apiextensions.CustomResourceDefinition](a.GetObject())
	if err != nil {
		return err
	}
	err = c.reserver.Reserve(ctx, schema.GroupResource{Group: definition.Spec.Group, Resource: definition.Spec.Names.Plural}, a.IsDryRun())
	switch {
	case err == nil:
		return nil
	case errors.Is(err, binding.ErrReserved):
		return rules.Forbid(a, "%w", err)
	}
	return apierrors.NewInternalError(err)
}
