package snapshot

import (
	"fmt"
	"io"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/atoll-dev/atoll/plugin/manifests"
)

const definitionKind = "CustomResourceDefinition"

// readDefinitions returns the definitions in a file. Any other object is an error, so that no object of a file is ignored silently.
func readDefinitions(file string, stdin io.Reader) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	var all []*apiextensionsv1.CustomResourceDefinition
	err := manifests.Read(file, stdin, func(kind metav1.TypeMeta, document []byte) error {
		if kind.Kind != definitionKind || kind.APIVersion != apiextensionsv1.SchemeGroupVersion.String() {
			return fmt.Errorf("want a %s of %s, not a %s of %s", definitionKind, apiextensionsv1.SchemeGroupVersion, kind.Kind, kind.APIVersion)
		}
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := sigsyaml.UnmarshalStrict(document, definition); err != nil {
			return err
		}
		all = append(all, definition)
		return nil
	})
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("%s holds no %s", manifests.Name(file), definitionKind)
	}
	return all, err
}
