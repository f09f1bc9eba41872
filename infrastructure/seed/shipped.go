package seed

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
)

// directory contains one file for each Template. Files use the default API group, so that kubectl can apply them.
const directory = "templates"

//go:embed templates/*.yaml
var files embed.FS

// Shipped returns the shipped Templates, in the given API group, in the order of their file names.
func Shipped(group string) ([]infrastructurev1alpha1.Template, error) {
	entries, err := files.ReadDir(directory)
	if err != nil {
		return nil, fmt.Errorf("reading the shipped templates: %w", err)
	}
	templates := make([]infrastructurev1alpha1.Template, len(entries))
	for i, entry := range entries {
		text, err := files.ReadFile(path.Join(directory, entry.Name()))
		if err != nil {
			return nil, fmt.Errorf("reading the shipped template %s: %w", entry.Name(), err)
		}
		text = bytes.ReplaceAll(text, []byte(infrastructurev1alpha1.GroupName), []byte(group))
		if err := yaml.UnmarshalStrict(text, &templates[i]); err != nil {
			return nil, fmt.Errorf("reading the shipped template %s: %w", entry.Name(), err)
		}
	}
	return templates, nil
}

// hash returns the hash of a spec. It does not depend on the order of fields.
func hash(spec *infrastructurev1alpha1.TemplateSpec) (string, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(spec)
	if err != nil {
		return "", fmt.Errorf("hashing a template: %w", err)
	}
	text, err := json.Marshal(content) // Marshal sorts the keys of maps
	if err != nil {
		return "", fmt.Errorf("hashing a template: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}
