package kro

import (
	"fmt"

	"github.com/google/cel-go/cel"
	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/ext"
	krocel "github.com/kubernetes-sigs/kro/pkg/cel"
	"github.com/kubernetes-sigs/kro/pkg/graph"

	"github.com/atoll-dev/atoll/internal/expression"
)

// maxRandom bounds the length of random strings in expressions.
const maxRandom = 1024

// limitGraph replaces the programs of the expressions of a graph by programs with limited costs and results. The compiler has no option for
// that: it checks the types of expressions, and compiles them without limits.
func limitGraph(g *graph.Graph) error {
	env, err := limitedEnvironment(g)
	if err != nil {
		return err
	}
	for _, node := range append(nodesOf(g), g.Instance) {
		for _, e := range expressionsOf(node) {
			if err := limit(env, e); err != nil {
				return fmt.Errorf("resource %q: expression %q: %w", node.Meta.ID, e.UserExpression(), err)
			}
		}
	}
	return nil
}

// limitedEnvironment returns an environment with the functions of the compiler, and all variables of a graph. The variables have dynamic
// types, because the compiler has already checked the types.
func limitedEnvironment(g *graph.Graph) (*cel.Env, error) {
	// cel does not add a library that is already present, so the limited one comes first.
	options := append([]cel.EnvOption{ext.Lists(ext.ListsMaxRangeSize(expression.MaxRangeSize))}, krocel.BaseDeclarations()...)
	names := map[string]bool{graph.SchemaVarName: true, graph.EachVarName: true}
	for _, node := range nodesOf(g) {
		names[node.Meta.ID] = true
		for _, dimension := range node.ForEach {
			names[dimension.Name] = true
		}
	}
	for name := range names {
		options = append(options, cel.Variable(name, cel.DynType))
	}
	return cel.NewEnv(options...)
}

func nodesOf(g *graph.Graph) []*graph.Node {
	nodes := make([]*graph.Node, 0, len(g.TopologicalOrder)+1)
	for _, id := range g.TopologicalOrder {
		nodes = append(nodes, g.Nodes[id])
	}
	return nodes
}

func expressionsOf(node *graph.Node) []*krocel.Expression {
	var all []*krocel.Expression
	for _, v := range node.Variables {
		all = append(all, v.Expression)
	}
	all = append(append(all, node.IncludeWhen...), node.ReadyWhen...)
	for _, dimension := range node.ForEach {
		all = append(all, dimension.Expression)
	}
	return all
}

func limit(env *cel.Env, e *krocel.Expression) error {
	ast, issues := env.Compile(e.Original)
	if err := issues.Err(); err != nil {
		return err
	}
	if err := checkRandom(ast); err != nil {
		return err
	}
	var err error
	e.Program, err = expression.Program(env, ast)
	return err
}

// checkRandom refuses random strings whose length depends on an instance: their cost is unknown before they are evaluated.
func checkRandom(ast *cel.Ast) error {
	var err error
	celast.PostOrderVisit(ast.NativeRep().Expr(), celast.NewExprVisitor(func(e celast.Expr) {
		if e.Kind() != celast.CallKind || e.AsCall().FunctionName() != "random.seededString" || len(e.AsCall().Args()) == 0 {
			return
		}
		length := e.AsCall().Args()[0]
		if value, ok := length.AsLiteral().(types.Int); length.Kind() != celast.LiteralKind || !ok || value > maxRandom {
			err = fmt.Errorf("the length of a random string must be a number up to %d", maxRandom)
		}
	}))
	return err
}
