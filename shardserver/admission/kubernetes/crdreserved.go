package kubernetes

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiserver/pkg/admission"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/admission/rules"
	ownapiextensions "github.com/atoll-dev/atoll/shardserver/apis/apiextensions"
)

// reservedAPIs is the domain of the annotations that describe the origin of a bound definition, and of the system's own
// groups.
const reservedAPIs = "apis.kcp.io"

// reservedCRD refuses definitions with reserved annotations or groups in every logical cluster but the one of the
// system's own definitions. Masters are not exempt: the server trusts these annotations, so a wrong one
// would take effect.
type reservedCRD struct {
	*admission.Handler
	exempt logicalcluster.Name
	check  func(*apiextensions.CustomResourceDefinition) (what, which string)
}

// NewReservedCRDAnnotations returns the plug-in apis.kcp.io/ReservedCRDAnnotations.
func NewReservedCRDAnnotations(rules.Config) admission.Interface {
	return &reservedCRD{admission.NewHandler(admission.Create, admission.Update), logicalcluster.BoundCRDs, reservedAnnotation}
}

// NewReservedCRDGroups returns the plug-in kcp.io/ReservedCRDGroups.
func NewReservedCRDGroups(rules.Config) admission.Interface {
	return &reservedCRD{admission.NewHandler(admission.Create, admission.Update), logicalcluster.SystemCRDs, reservedGroup}
}

// Validate implements admission.ValidationInterface.
func (r *reservedCRD) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != ownapiextensions.Definitions {
		return nil
	}
	cluster, ok := logicalcluster.From(ctx)
	if !ok {
		return rules.ErrNoCluster
	}
	if cluster == r.exempt {
		return nil
	}
	definition, err := rules.ObjectOf[*apiextensions.CustomResourceDefinition](a.GetObject())
	if err != nil {
		return err
	}
	if what, which := r.check(definition); which != "" {
		return rules.Forbid(a, "%s %q is reserved for the system", what, which)
	}
	return nil
}

// reservedAnnotation returns the first annotation in the reserved domain or a subdomain of it.
func reservedAnnotation(definition *apiextensions.CustomResourceDefinition) (what, which string) {
	var found []string
	for key := range definition.Annotations {
		domain, _, prefixed := strings.Cut(key, "/")
		if prefixed && (domain == reservedAPIs || strings.HasSuffix(domain, "."+reservedAPIs)) {
			found = append(found, key)
		}
	}
	if len(found) == 0 {
		return "", ""
	}
	return "annotation", slices.Min(found)
}

// reservedGroup returns the group if it ends in the name of the reserved one, with or without a dot before it.
func reservedGroup(definition *apiextensions.CustomResourceDefinition) (what, which string) {
	if !strings.HasSuffix(definition.Spec.Group, reservedAPIs) {
		return "", ""
	}
	return "group", definition.Spec.Group
}
