// Package typednil reports conversions that make an interface value unequal to nil although what it holds is nil. Stock analyzers (nilness,
// SA4023) follow values within a function; a nil that reaches an optional interface field crosses functions.
package typednil

import (
	"go/ast"
	"go/token"
	"go/types"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/inspect"
	"golang.org/x/tools/go/ast/inspector"
)

// Analyzer reports calls that return a pointer together with an error, where the pointer is assigned, or returned, as an
// interface in the same statement: with an error the interface holds a nil pointer, and comparisons with nil do not see it.
var Analyzer = &analysis.Analyzer{
	Name:     "typednil",
	Doc:      "report interfaces that hold a nil pointer after an error",
	Requires: []*analysis.Analyzer{inspect.Analyzer},
	Run:      run,
}

func run(pass *analysis.Pass) (any, error) {
	in := pass.ResultOf[inspect.Analyzer].(*inspector.Inspector)
	for cursor := range in.Root().Preorder((*ast.AssignStmt)(nil), (*ast.ValueSpec)(nil), (*ast.ReturnStmt)(nil)) {
		switch node := cursor.Node().(type) {
		case *ast.AssignStmt:
			if node.Tok == token.ASSIGN {
				check(pass, typesOf(pass, node.Lhs), node.Rhs)
			}
		case *ast.ValueSpec:
			if node.Type != nil {
				check(pass, repeat(pass.TypesInfo.TypeOf(node.Type), len(node.Names)), node.Values)
			}
		case *ast.ReturnStmt:
			check(pass, resultsOf(pass, cursor), node.Results)
		}
	}
	return nil, nil
}

// check checks the results of one call against the types that they are converted to.
func check(pass *analysis.Pass, targets []types.Type, sources []ast.Expr) {
	if len(sources) != 1 {
		return
	}
	results, ok := pass.TypesInfo.TypeOf(sources[0]).(*types.Tuple)
	if !ok || results.Len() != len(targets) || !isError(results.At(results.Len()-1).Type()) {
		return
	}
	relative := types.RelativeTo(pass.Pkg)
	for i, target := range targets {
		if result := results.At(i).Type(); isInterface(target) && isPointer(result) {
			pass.Reportf(sources[0].Pos(), "with an error, the interface %s holds a nil %s: assign to a variable of that type, and convert it once the error is checked",
				types.TypeString(target, relative), types.TypeString(result, relative))
		}
	}
}

func typesOf(pass *analysis.Pass, all []ast.Expr) []types.Type {
	found := make([]types.Type, 0, len(all))
	for _, e := range all {
		found = append(found, pass.TypesInfo.TypeOf(e)) // nil for the blank identifier
	}
	return found
}

// resultsOf returns the types of the results of the function around a return statement.
func resultsOf(pass *analysis.Pass, at inspector.Cursor) []types.Type {
	for around := range at.Enclosing((*ast.FuncDecl)(nil), (*ast.FuncLit)(nil)) {
		var signature *types.Signature
		switch function := around.Node().(type) {
		case *ast.FuncDecl:
			signature, _ = pass.TypesInfo.ObjectOf(function.Name).Type().(*types.Signature)
		case *ast.FuncLit:
			signature, _ = pass.TypesInfo.TypeOf(function).(*types.Signature)
		}
		if signature == nil {
			return nil
		}
		found := make([]types.Type, 0, signature.Results().Len())
		for result := range signature.Results().Variables() {
			found = append(found, result.Type())
		}
		return found
	}
	return nil
}

func repeat(t types.Type, n int) []types.Type {
	all := make([]types.Type, n)
	for i := range all {
		all[i] = t
	}
	return all
}

func isInterface(t types.Type) bool {
	if t == nil {
		return false
	}
	_, parameter := types.Unalias(t).(*types.TypeParam)
	return types.IsInterface(t) && !parameter
}

func isPointer(t types.Type) bool {
	_, ok := t.Underlying().(*types.Pointer)
	return ok
}

func isError(t types.Type) bool { return types.Identical(t, types.Universe.Lookup("error").Type()) }
