package related

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/internal/expression"
)

// bySelector lists objects on the side of the origin, and computes the names of their copies.
func (l *locator) bySelector(ctx context.Context, q query) ([]names, error) {
	rewrite := q.spec.Selector.Rewrite
	if (rewrite.Regex == nil) == (rewrite.Template == nil) {
		return nil, errors.New("exactly one of rewrite.regex and rewrite.template must be set")
	}
	selector, err := l.selector(q.spec.Selector.LabelSelector)
	if err != nil {
		return nil, err
	}
	if selector == nil {
		return nil, nil
	}
	listed, err := q.list(ctx, selector)
	if err != nil {
		return nil, fmt.Errorf("list on the %s side: %w", l.origin.name, err)
	}
	if len(listed) > maxPairs {
		return nil, fmt.Errorf("selects more than %d", maxPairs)
	}
	result := make([]names, 0, len(listed))
	for i := range listed {
		renamed, err := l.rewrite(rewrite, &listed[i], q.objects)
		if err != nil {
			return nil, fmt.Errorf("rewrite of %s: %w", listed[i].GetName(), err)
		}
		result = append(result, names{origin: listed[i].GetName(), copy: renamed})
	}
	slices.SortFunc(result, func(a, b names) int { return strings.Compare(a.origin, b.origin) })
	return result, nil
}

// rewrite returns the name of the copy of an object or a namespace.
func (l *locator) rewrite(
	rewrite syncagentv1alpha1.RelatedResourceSelectorRewrite, listed *unstructured.Unstructured, isObject bool,
) (string, error) {
	if rewrite.Regex != nil {
		return replace(rewrite.Regex, listed.GetName())
	}
	data := l.data()
	data["Value"], data["RelatedObject"] = listed.GetName(), nil
	if isObject {
		data["RelatedObject"] = listed.Object
	}
	return expression.Render(rewrite.Template.Template, data)
}

// data returns the variables of templates that do not belong to one side. The local side is the service cluster.
func (l *locator) data() map[string]any {
	return map[string]any{
		"LocalObject": l.in.Service.Object, "RemoteObject": l.in.Workspace.Object,
		"ClusterName": l.in.ClusterName, "ClusterPath": l.in.ClusterPath,
	}
}

// selector renders the templates of a selector. It returns nil for a selector that selects nothing: if rendering drops all requirements,
// the remaining selector would select everything.
func (l *locator) selector(spec metav1.LabelSelector) (labels.Selector, error) {
	rendered := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(spec.MatchLabels)) {
		newKey, err := l.renderLabel(key)
		if err != nil {
			return nil, fmt.Errorf("key %q of matchLabels: %w", key, err)
		}
		if newKey == "" {
			continue
		}
		value, err := l.renderLabel(spec.MatchLabels[key])
		if err != nil {
			return nil, fmt.Errorf("value of %q in matchLabels: %w", key, err)
		}
		if other, found := rendered[newKey]; found && other != value {
			return nil, fmt.Errorf("two keys of matchLabels are rendered to %q, with the values %q and %q", newKey, other, value)
		}
		rendered[newKey] = value
	}
	if len(rendered) == 0 && len(spec.MatchExpressions) == 0 && len(spec.MatchLabels) > 0 {
		return nil, nil
	}
	return metav1.LabelSelectorAsSelector(&metav1.LabelSelector{MatchLabels: rendered, MatchExpressions: spec.MatchExpressions})
}

// renderLabel renders a key or a value. A field that does not exist renders as an empty text.
func (l *locator) renderLabel(text string) (string, error) {
	if !strings.Contains(text, "{{") {
		return text, nil
	}
	rendered, err := expression.Render(text, l.data())
	return strings.ReplaceAll(rendered, expression.NoValue, ""), err
}
