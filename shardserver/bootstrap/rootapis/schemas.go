package rootapis

import (
	"embed"
	"fmt"

	"sigs.k8s.io/yaml"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
)

// files are generated from config/kcp/crd by hack/rootschemas.
//
//go:embed schemas
var files embed.FS

// Directory is the directory of the files, relative to this package.
const Directory = "schemas"

// FileName returns the name of the file with the schema of a resource.
func (r Resource) FileName() string { return r.String() + ".yaml" }

// APIResourceSchema returns the APIResourceSchema object.
func (r Resource) APIResourceSchema() (*apisv1alpha1.APIResourceSchema, error) {
	text, err := files.ReadFile(Directory + "/" + r.FileName())
	if err != nil {
		return nil, fmt.Errorf("the schema of %s is not part of this program: %w", r, err)
	}
	schema := &apisv1alpha1.APIResourceSchema{}
	if err := yaml.UnmarshalStrict(text, schema); err != nil {
		return nil, fmt.Errorf("reading the schema of %s: %w", r, err)
	}
	return schema, nil
}
