package apiindex

import (
	"crypto/sha256"
	"encoding/json"
	"math/big"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
)

// ReflexiveClaimValue is the value of an export's claim label on the APIBindings that bind this export. The provider of
// an export sees its bindings without a claim.
var ReflexiveClaimValue = base62([]byte{
	0, 1, 2, 3, 4, 5, 6, 7, 8, 9,
	0, 1, 2, 3, 4, 5, 6, 7, 8, 9,
	0, 1, 2, 3, 4, 5, 6, 7,
})

// ExportLabel returns the label of the APIBindings that bind an export.
func ExportLabel(export bindings.ExportKey) (key, value string) {
	return apisv1alpha2.ExportLabelKey, exportHash(export)
}

// ClaimLabelKey returns the label key of all objects that the provider of an export may see by a claim.
func ClaimLabelKey(export bindings.ExportKey) string {
	return apisv1alpha2.ClaimedLabelKeyPrefix + exportHash(export)
}

// ClaimLabel returns the label of the objects that the provider of an export may see by one claim.
func ClaimLabel(export bindings.ExportKey, claim apisv1alpha2.PermissionClaim) (key, value string) {
	return ClaimLabelKey(export), claimHash(claim)
}

func exportHash(export bindings.ExportKey) string {
	return base62Sha224(export.Cluster.String() + ":" + export.Name)
}

// claimHash returns the hash of a claim's resource and identity. Verbs and selector are not part of it, so that labels
// stay valid when those change.
func claimHash(claim apisv1alpha2.PermissionClaim) string {
	claim = NormalizeClaim(claim)
	text, err := json.Marshal(struct {
		Group        string   `json:"group,omitempty"`
		Resource     string   `json:"resource"`
		Verbs        []string `json:"verbs"`
		IdentityHash string   `json:"identityHash,omitempty"`
	}{Group: claim.Group, Resource: claim.Resource, IdentityHash: claim.IdentityHash})
	if err != nil {
		panic(err) // strings can always be encoded
	}
	return base62Sha224(string(text))
}

// NormalizeClaim returns a claim with its resource normalized by NormalizeResource.
func NormalizeClaim(claim apisv1alpha2.PermissionClaim) apisv1alpha2.PermissionClaim {
	claim.Group = NormalizeResource(schema.GroupResource{Group: claim.Group, Resource: claim.Resource}).Group
	return claim
}

// NormalizeResource returns the core group for events, which Kubernetes serves in two groups with the same objects.
// Other resources are returned unchanged.
func NormalizeResource(gr schema.GroupResource) schema.GroupResource {
	if gr.Group == eventsv1.GroupName && gr.Resource == "events" {
		gr.Group = corev1.GroupName
	}
	return gr
}

// base62Sha224 returns the SHA-224 of a text as a big-endian number in base 62 with the digits 0-9, a-z, A-Z.
func base62Sha224(text string) string {
	sum := sha256.Sum224([]byte(text))
	return base62(sum[:])
}

func base62(number []byte) string { return new(big.Int).SetBytes(number).Text(62) }
