package binding

import (
	"crypto/sha256"
	"encoding/json"
	"maps"
	"strings"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// fingerprint is a hash of all fields of an export that affect its bindings. Every workspace of the shard may bind an
// export, so that other changes, such as conditions, must not requeue them.
type fingerprint [sha256.Size]byte

func computeFingerprint(export *apisv1alpha2.APIExport) fingerprint {
	text, err := json.Marshal(struct {
		UID       string
		Path      string
		Resources []apisv1alpha2.ResourceSchema
		Claims    []apisv1alpha2.PermissionClaim
		Identity  string
		Extra     map[string]string
	}{
		string(export.UID), export.Annotations[logicalcluster.PathAnnotationKey], export.Spec.Resources,
		export.Spec.PermissionClaims, export.Status.IdentityHash, extraAnnotations(export.Annotations),
	})
	if err != nil {
		panic(err) // types of an API can always be encoded
	}
	return sha256.Sum256(text)
}

// extraAnnotations returns the annotations that are copied from an export to its bindings.
func extraAnnotations(annotations map[string]string) map[string]string {
	copied := maps.Clone(annotations)
	maps.DeleteFunc(copied, func(key, _ string) bool { return !strings.HasPrefix(key, apisv1alpha2.ExtraAnnotationKeyPrefix) })
	return copied
}
