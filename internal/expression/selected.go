package expression

import (
	"fmt"
	"maps"
	"slices"

	"github.com/google/cel-go/common/ast"
)

// Selected returns the fields of a variable that the CEL expressions in a value for Expand select: "main" for other.main.data.
func Selected(value any, variable string) ([]string, error) {
	var found []string
	switch v := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			fields, err := Selected(v[key], variable)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", key, err)
			}
			found = append(found, fields...)
		}
	case []any:
		for i, element := range v {
			fields, err := Selected(element, variable)
			if err != nil {
				return nil, fmt.Errorf("[%d]: %w", i, err)
			}
			found = append(found, fields...)
		}
	case string:
		parts, err := Split(v)
		if err != nil {
			return nil, err
		}
		for _, p := range parts {
			if !p.IsExpression {
				continue
			}
			fields, err := SelectedCEL(p.Text, variable)
			if err != nil {
				return nil, err
			}
			found = append(found, fields...)
		}
	}
	return found, nil
}

// SelectedCEL returns the fields of a variable that a CEL expression selects. A test whether a field exists selects none.
func SelectedCEL(expression, variable string) ([]string, error) {
	compiled, err := compileCEL(expression)
	if err != nil {
		return nil, err
	}
	var fields []string
	for _, match := range ast.MatchDescendants(ast.NavigateAST(compiled.tree), ast.KindMatcher(ast.SelectKind)) {
		selected := match.AsSelect()
		operand := selected.Operand()
		if selected.IsTestOnly() || operand.Kind() != ast.IdentKind || operand.AsIdent() != variable || isBound(match, variable) {
			continue
		}
		fields = append(fields, selected.FieldName())
	}
	return fields, nil
}

// isBound reports whether a name is a loop variable of a loop that encloses an expression.
func isBound(within ast.NavigableExpr, name string) bool {
	for {
		parent, found := within.Parent()
		if !found {
			return false
		}
		if parent.Kind() == ast.ComprehensionKind && binds(parent.AsComprehension(), within.ID(), name) {
			return true
		}
		within = parent
	}
}

// binds reports whether a name is a loop variable in a part of a loop. The range of the loop is not in its scope.
func binds(loop ast.ComprehensionExpr, part int64, name string) bool {
	switch part {
	case loop.IterRange().ID(), loop.AccuInit().ID():
		return false
	case loop.Result().ID():
		return name == loop.AccuVar()
	}
	return name == loop.AccuVar() || name == loop.IterVar() || name == loop.IterVar2()
}
