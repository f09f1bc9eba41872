package snapshot

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"
)

const definitionKind = "CustomResourceDefinition"

// readDefinitions returns the definitions in a stream of YAML or JSON documents, including those in lists. Empty documents are
// skipped; any other object is an error, so that no object of a file is ignored silently.
func readDefinitions(in io.Reader) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	documents := yaml.NewYAMLReader(bufio.NewReader(in))
	var all []*apiextensionsv1.CustomResourceDefinition
	for number := 1; ; number++ {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", number, err)
		}
		found, err := decodeDefinitions(document)
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", number, err)
		}
		all = append(all, found...)
	}
}

func decodeDefinitions(document []byte) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	var object struct {
		metav1.TypeMeta `json:",inline"`
		Items           []runtime.RawExtension `json:"items"`
	}
	if err := sigsyaml.Unmarshal(document, &object); err != nil {
		return nil, err
	}
	switch {
	case object.TypeMeta == metav1.TypeMeta{}:
		return nil, checkEmpty(document)
	case object.Kind == "List" || object.Kind == definitionKind+"List":
		var all []*apiextensionsv1.CustomResourceDefinition
		for i, item := range object.Items {
			found, err := decodeDefinitions(item.Raw)
			if err != nil {
				return nil, fmt.Errorf("item %d: %w", i+1, err)
			}
			all = append(all, found...)
		}
		return all, nil
	case object.Kind != definitionKind || object.APIVersion != apiextensionsv1.SchemeGroupVersion.String():
		return nil, fmt.Errorf("want a %s of %s, not a %s of %s", definitionKind, apiextensionsv1.SchemeGroupVersion, object.Kind, object.APIVersion)
	}
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := sigsyaml.UnmarshalStrict(document, definition); err != nil {
		return nil, err
	}
	return []*apiextensionsv1.CustomResourceDefinition{definition}, nil
}

// checkEmpty accepts a document that contains only comments and space.
func checkEmpty(document []byte) error {
	var content any
	if err := sigsyaml.Unmarshal(document, &content); err != nil {
		return err
	}
	if content != nil {
		return fmt.Errorf("want a %s, not an object without apiVersion and kind", definitionKind)
	}
	return nil
}
