package template

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	"github.com/atoll-dev/atoll/internal/apiresourceschema"
)

// schemaPrefix is followed by the head of the hash in names of schemas.
const schemaPrefix = "tmpl"

// Schema returns the APIResourceSchema of a definition. Its name is a function of its content, so that the same content never makes
// a second object.
func Schema(definition *apiextensionsv1.CustomResourceDefinition) (*apisv1alpha1.APIResourceSchema, error) {
	content := definition.Spec
	content.Conversion = nil
	// encoding/json sorts the keys of maps and writes fields of structs in their order, so the text is canonical.
	text, err := json.Marshal(content)
	if err != nil {
		return nil, fmt.Errorf("hashing the definition: %w", err)
	}
	sum := sha256.Sum256(text)
	return apiresourceschema.FromDefinition(&apiextensionsv1.CustomResourceDefinition{Spec: content}, schemaPrefix+hex.EncodeToString(sum[:4]))
}
