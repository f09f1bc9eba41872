package related

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/internal/expression"
	"github.com/atoll-dev/atoll/syncagent/naming"
)

// OwnerChoosesNamespace reports whether the entry leads to a namespace of the service cluster independent of what consumers write: the
// locator returns it without any data of an object. Without a locator, the naming of the primary object decides.
func OwnerChoosesNamespace(spec syncagentv1alpha1.RelatedResourceSpec, primary *syncagentv1alpha1.ResourceNaming, clusterName, namespace string) bool {
	locator := spec.Object.Namespace
	switch {
	case locator == nil:
		return namingLeadsTo(primary, clusterName, types.NamespacedName{Namespace: namespace})
	case locator.Selector != nil && spec.Origin == syncagentv1alpha1.RelatedResourceOriginService:
		return isConstant(locator.Selector.MatchLabels)
	}
	constant, found := Constant(locator, clusterName)
	return found && constant == namespace
}

// OwnerChoosesCopyName reports whether the entry leads to a name of a copy on the service cluster independent of what consumers write.
func OwnerChoosesCopyName(spec syncagentv1alpha1.RelatedResourceSpec, clusterName, name string) bool {
	constant, found := Constant(&spec.Object.RelatedResourceObjectSpec, clusterName)
	return found && constant == name
}

// OwnerChoosesPrimary reports the same for the naming of primary objects: for the namespace of their copies, or for the name of
// cluster-scoped ones.
func OwnerChoosesPrimary(primary *syncagentv1alpha1.ResourceNaming, clusterName string, key types.NamespacedName) bool {
	return namingLeadsTo(primary, clusterName, key)
}

// Constant returns the name that a locator returns on the service cluster without any data of an object, and false if the name depends on
// an object. For a selector, it is the name of copies.
func Constant(locator *syncagentv1alpha1.RelatedResourceObjectSpec, clusterName string) (name string, found bool) {
	switch {
	case locator.Reference != nil:
		return constantOfRegex(locator.Reference.Regex)
	case locator.Template != nil:
		return constantOfTemplate(locator.Template.Template, clusterName)
	case locator.Selector == nil:
		return "", false
	case locator.Selector.Rewrite.Template != nil:
		return constantOfTemplate(locator.Selector.Rewrite.Template.Template, clusterName)
	}
	return constantOfRegex(locator.Selector.Rewrite.Regex)
}

// namingLeadsTo checks the namespace of a key, or the name of a key without namespace.
func namingLeadsTo(primary *syncagentv1alpha1.ResourceNaming, clusterName string, key types.NamespacedName) bool {
	if primary == nil {
		return false // the default depends on the object, or is the name of the logical cluster
	}
	none := naming.Input{
		Object: &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{}}}, ClusterName: clusterName,
		ClusterScoped: key.Namespace == "",
	}
	if none.ClusterScoped {
		got, err := naming.Key(primary, none)
		return err == nil && got == key
	}
	got, err := naming.Key(&syncagentv1alpha1.ResourceNaming{Namespace: primary.Namespace}, none)
	return err == nil && got.Namespace == key.Namespace
}

// constantOfRegex returns the replacement of an expression without a pattern, which replaces any value.
func constantOfRegex(regex *syncagentv1alpha1.RegularExpression) (name string, found bool) {
	if regex == nil || regex.Pattern != "" {
		return "", false
	}
	return regex.Replacement, true
}

// constantOfTemplate renders the template for the service cluster.
func constantOfTemplate(template, clusterName string) (name string, found bool) {
	none := map[string]any{"metadata": map[string]any{}}
	rendered, err := expression.Render(template, map[string]any{
		"Side": string(syncagentv1alpha1.RelatedResourceOriginService), "Value": expression.NoValue, "ClusterName": clusterName,
		"ClusterPath": expression.NoValue, "Object": none, "RelatedObject": nil, "LocalObject": none, "RemoteObject": none,
	})
	return rendered, err == nil && rendered != "" && !strings.Contains(rendered, expression.NoValue)
}

func isConstant(matchLabels map[string]string) bool {
	for key, value := range matchLabels {
		if strings.Contains(key, "{{") || strings.Contains(value, "{{") {
			return false
		}
	}
	return true
}
