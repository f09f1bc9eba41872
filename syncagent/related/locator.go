package related

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/internal/expression"
)

// side is one side of the sync: its name in templates, the primary object, and the group of the related resource.
type side struct {
	name    string
	primary *unstructured.Unstructured
	group   string
}

type locator struct {
	spec         syncagentv1alpha1.RelatedResourceSpec
	in           Input
	origin, copy side
}

func newLocator(spec syncagentv1alpha1.RelatedResourceSpec, in Input) *locator {
	l := &locator{spec: spec, in: in}
	l.origin, l.copy = side{name: "kcp", primary: in.Workspace}, side{name: "service", primary: in.Service}
	if spec.Origin == syncagentv1alpha1.RelatedResourceOriginService {
		l.origin, l.copy = l.copy, l.origin
	}
	l.origin.group, l.copy.group = OriginResource(spec).Group, CopyResource(spec).Group
	return l
}

// names are the names on both sides.
type names struct {
	origin, copy string
}

// query finds objects or namespaces.
type query struct {
	spec     syncagentv1alpha1.RelatedResourceObjectSpec
	field    string
	objects  bool
	validate func(group string) func(string) []string
	list     func(context.Context, labels.Selector) ([]unstructured.Unstructured, error)
}

// find returns the names that a query finds, after validation. It leaves out names that are empty on either side.
func (l *locator) find(ctx context.Context, q query) ([]names, error) {
	found, description, err := l.evaluate(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", description, err)
	}
	found = slices.DeleteFunc(found, func(n names) bool { return n.origin == "" || n.copy == "" })
	for _, n := range found {
		for _, s := range []struct {
			side
			value string
		}{{l.origin, n.origin}, {l.copy, n.copy}} {
			if problems := q.validate(s.group)(s.value); len(problems) > 0 {
				return nil, fmt.Errorf("%s: name %q on the %s side: %s", description, s.value, s.name, strings.Join(problems, "; "))
			}
		}
	}
	return found, nil
}

// evaluate also returns the description of the locator for errors.
func (l *locator) evaluate(ctx context.Context, q query) ([]names, string, error) {
	set := 0
	for _, isSet := range []bool{q.spec.Reference != nil, q.spec.Selector != nil, q.spec.Template != nil} {
		if isSet {
			set++
		}
	}
	switch {
	case set != 1:
		return nil, q.field, errors.New("exactly one of reference, selector and template must be set")
	case q.spec.Reference != nil:
		found, err := l.byReference(*q.spec.Reference)
		return found, fmt.Sprintf("%s.reference %s", q.field, q.spec.Reference.Path), err
	case q.spec.Template != nil:
		found, err := l.byTemplate(q.spec.Template.Template)
		return found, q.field + ".template", err
	}
	found, err := l.bySelector(ctx, q)
	return found, q.field + ".selector", err
}

// byReference reads names from the primary object on both sides, and pairs them by position.
func (l *locator) byReference(reference syncagentv1alpha1.RelatedResourceObjectReference) ([]names, error) {
	origins, originFound, err := resolveReference(l.origin, reference)
	if err != nil {
		return nil, err
	}
	copies, copyFound, err := resolveReference(l.copy, reference)
	switch {
	case err != nil:
		return nil, err
	case !originFound || !copyFound:
		return nil, nil // the field may be set later
	case len(origins) != len(copies):
		return nil, fmt.Errorf("%d names on the %s side, %d on the %s side", len(origins), l.origin.name, len(copies), l.copy.name)
	}
	result := make([]names, len(origins))
	for i := range origins {
		result[i] = names{origin: origins[i], copy: copies[i]}
	}
	return result, nil
}

// resolveReference returns the names at a path, and whether the path exists.
func resolveReference(s side, reference syncagentv1alpha1.RelatedResourceObjectReference) ([]string, bool, error) {
	value, err := expression.Get(s.primary.Object, reference.Path)
	if err != nil || !value.Exists() {
		return nil, false, err
	}
	found, err := namesOf(value)
	if err != nil {
		return nil, false, fmt.Errorf("on the %s side: %w", s.name, err)
	}
	for i := range found {
		if found[i], err = replace(reference.Regex, found[i]); err != nil {
			return nil, false, err
		}
	}
	return found, true, nil
}

// namesOf returns a scalar as text, and the elements of lists, including nested lists.
func namesOf(value gjson.Result) ([]string, error) {
	switch {
	case value.IsObject():
		return nil, errors.New("is an object, not a name or a list of names")
	case !value.IsArray():
		return []string{value.String()}, nil
	}
	result := []string{}
	for _, element := range value.Array() {
		found, err := namesOf(element)
		if err != nil {
			return nil, err
		}
		result = append(result, found...)
	}
	return result, nil
}

// replace applies a regular expression. It does not change an empty name, unless the expression is a constant.
func replace(regex *syncagentv1alpha1.RegularExpression, name string) (string, error) {
	if regex == nil || name == "" && regex.Pattern != "" {
		return name, nil
	}
	return expression.Replace(regex.Pattern, regex.Replacement, name)
}

// byTemplate renders a name for each side.
func (l *locator) byTemplate(template string) ([]names, error) {
	var result names
	for _, s := range []struct {
		side
		name *string
	}{{l.origin, &result.origin}, {l.copy, &result.copy}} {
		rendered, err := expression.Render(template, map[string]any{
			"Side": s.side.name, "Object": s.primary.Object, "ClusterName": l.in.ClusterName, "ClusterPath": l.in.ClusterPath,
		})
		if err != nil {
			return nil, fmt.Errorf("on the %s side: %w", s.side.name, err)
		}
		if strings.Contains(rendered, expression.NoValue) {
			return nil, nil // the field may be set later
		}
		*s.name = rendered
	}
	return []names{result}, nil
}
