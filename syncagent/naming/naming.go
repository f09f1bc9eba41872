// Package naming computes the name and namespace of an object's copy.
package naming

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/internal/expression"
)

// The defaults give every object of every workspace a unique name.
const (
	DefaultName      = "{{ .Object.metadata.namespace | sha3short }}-{{ .Object.metadata.name | sha3short }}"
	DefaultNamespace = "{{ .ClusterName }}"
)

// Input is the input of naming patterns.
type Input struct {
	// Object is the object in the workspace.
	Object *unstructured.Unstructured
	// ClusterName is the name of its logical cluster, ClusterPath the path of its workspace if the publication enables workspace paths.
	ClusterName, ClusterPath string
	// ClusterScoped means that the copy has no namespace.
	ClusterScoped bool
}

// Key returns the namespace and name of a new copy. The agent finds existing copies by their labels instead.
func Key(naming *syncagentv1alpha1.ResourceNaming, in Input) (types.NamespacedName, error) {
	if naming == nil {
		naming = &syncagentv1alpha1.ResourceNaming{}
	}
	name, err := evaluate("naming.name", naming.Name, DefaultName, in, validation.IsDNS1123Subdomain)
	if err != nil || in.ClusterScoped {
		return types.NamespacedName{Name: name}, err
	}
	namespace, err := evaluate("naming.namespace", naming.Namespace, DefaultNamespace, in, validation.IsDNS1123Label)
	if err != nil {
		return types.NamespacedName{}, err
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, nil
}

func evaluate(field, pattern, byDefault string, in Input, validate func(string) []string) (string, error) {
	if pattern == "" {
		pattern = byDefault
	}
	result, err := substitute(pattern, in)
	if err != nil {
		return "", fmt.Errorf("%s: %w", field, err)
	}
	if strings.Contains(result, expression.NoValue) {
		return "", fmt.Errorf("%s: %q gives %q: the object lacks a field that the template uses", field, pattern, result)
	}
	if problems := validate(result); len(problems) > 0 {
		return "", fmt.Errorf("%s: %q gives %q: %s", field, pattern, result, strings.Join(problems, "; "))
	}
	return result, nil
}

// substitute renders a template, or a text with the older placeholders. It does not replace unknown placeholders.
func substitute(pattern string, in Input) (string, error) {
	if strings.Contains(pattern, "{{") {
		return expression.Render(pattern, map[string]any{
			"Object": in.Object.Object, "ClusterName": in.ClusterName, "ClusterPath": in.ClusterPath,
		})
	}
	namespace, name := in.Object.GetNamespace(), in.Object.GetName()
	// The replacer uses the first match, so longer placeholders precede their prefixes.
	return strings.NewReplacer(
		"$remoteClusterName", in.ClusterName,
		"$remoteNamespaceHash", expression.ShortHash(namespace),
		"$remoteNamespace", namespace,
		"$remoteNameHash", expression.ShortHash(name),
		"$remoteName", name,
	).Replace(pattern), nil
}
