package related

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/internal/expression"
	"github.com/atoll-dev/atoll/syncagent/naming"
)

// OwnerChoosesNamespace reports whether the entry leads to a namespace of the service cluster whatever consumers write: it is what a locator
// gives without any data of an object. Without a locator, the naming of the primary object decides.
func OwnerChoosesNamespace(spec syncagentv1alpha1.RelatedResourceSpec, primary *syncagentv1alpha1.ResourceNaming, clusterName, namespace string) bool {
	locator := spec.Object.Namespace
	switch {
	case locator == nil:
		return namingLeadsTo(primary, clusterName, namespace)
	case locator.Reference != nil:
		return regexLeadsTo(locator.Reference.Regex, namespace)
	case locator.Template != nil:
		return templateLeadsTo(locator.Template.Template, clusterName, namespace)
	case locator.Selector == nil:
		return false
	case spec.Origin == syncagentv1alpha1.RelatedResourceOriginService:
		return isConstant(locator.Selector.MatchLabels)
	case locator.Selector.Rewrite.Template != nil:
		return templateLeadsTo(locator.Selector.Rewrite.Template.Template, clusterName, namespace)
	}
	return regexLeadsTo(locator.Selector.Rewrite.Regex, namespace)
}

func namingLeadsTo(primary *syncagentv1alpha1.ResourceNaming, clusterName, namespace string) bool {
	if primary == nil {
		return false // the default is the name of the logical cluster
	}
	key, err := naming.Key(&syncagentv1alpha1.ResourceNaming{Namespace: primary.Namespace}, naming.Input{
		Object: &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{}}}, ClusterName: clusterName,
	})
	return err == nil && key.Namespace == namespace
}

// regexLeadsTo is about the form that replaces whatever there is.
func regexLeadsTo(regex *syncagentv1alpha1.RegularExpression, namespace string) bool {
	return regex != nil && regex.Pattern == "" && regex.Replacement == namespace
}

// templateLeadsTo renders the template for the service cluster.
func templateLeadsTo(template, clusterName, namespace string) bool {
	none := map[string]any{"metadata": map[string]any{}}
	rendered, err := expression.Render(template, map[string]any{
		"Side": string(syncagentv1alpha1.RelatedResourceOriginService), "Value": "", "ClusterName": clusterName, "ClusterPath": "",
		"Object": none, "RelatedObject": nil, "LocalObject": none, "RemoteObject": none,
	})
	return err == nil && rendered == namespace
}

func isConstant(matchLabels map[string]string) bool {
	for key, value := range matchLabels {
		if strings.Contains(key, "{{") || strings.Contains(value, "{{") {
			return false
		}
	}
	return true
}
