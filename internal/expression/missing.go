package expression

import (
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
)

// MissingError is the error of an expression that lacks a field or an element, and may succeed when the counterpart of the object has it.
// Any other error is independent of the counterpart.
type MissingError struct{ error }

func (e *MissingError) Unwrap() error { return e.error }

// missing are messages of errors in cel-go whose types are not exported.
var missing = []string{"no such key", "no such attribute", "index out of bounds", "out of range in list size"}

func isMissing(err error) bool {
	return slices.ContainsFunc(missing, func(text string) bool { return strings.Contains(err.Error(), text) })
}

// uses reports whether an expression uses a variable.
func (c *compiledCEL) uses(variable string) bool {
	return slices.ContainsFunc(ast.MatchDescendants(ast.NavigateAST(c.tree), ast.KindMatcher(ast.IdentKind)), func(e ast.NavigableExpr) bool {
		return e.AsIdent() == variable && !isBound(e, variable)
	})
}
