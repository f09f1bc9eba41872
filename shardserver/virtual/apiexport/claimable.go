package apiexport

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
)

var (
	coreEvents = schema.GroupResource{Resource: "events"}
	newEvents  = schema.GroupResource{Group: "events.k8s.io", Resource: "events"}
)

// claimableKCPResources are the resources of apis.kcp.io that can be claimed.
var claimableKCPResources = []schema.GroupResource{apiBindings, apisv1alpha2.Resource("apiexports"), apisv1alpha1.Resource("apiresourceschemas")}

// isClaimable reports whether a resource is built in and can be claimed without an identity.
func isClaimable(gr schema.GroupResource) bool {
	return !apiindex.NeedsIdentity(gr) && (gr.Group != apiBindings.Group || slices.Contains(claimableKCPResources, gr))
}
