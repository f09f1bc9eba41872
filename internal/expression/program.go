package expression

import (
	"fmt"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types/ref"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/atoll-dev/atoll/internal/celcost"
)

// limited returns the program of an expression whose costs are limited as in the rules of a CustomResourceDefinition.
func limited(env *cel.Env, ast *cel.Ast) (cel.Program, error) {
	return env.Program(ast, cel.EvalOptions(cel.OptOptimize, cel.OptTrackCost), cel.CostLimit(celconfig.PerCallLimit),
		celcost.ProgramOption(celconfig.PerCallLimit))
}

// MaxRangeSize bounds the lists that expressions build from a number.
const MaxRangeSize = maxIterations

// Program returns the program of an expression of another environment, with the limits of EvaluateCEL: on its costs, and on the size of
// its result.
func Program(env *cel.Env, ast *cel.Ast) (cel.Program, error) {
	program, err := limited(env, ast)
	if err != nil {
		return nil, err
	}
	return boundedProgram{program}, nil
}

// boundedProgram refuses results that are larger, as JSON, than those of EvaluateCEL.
type boundedProgram struct{ cel.Program }

// Eval implements cel.Program.
func (p boundedProgram) Eval(input any) (ref.Val, *cel.EvalDetails, error) {
	result, details, err := p.Program.Eval(input)
	if err != nil {
		return result, details, err
	}
	if _, err := (&celConverter{}).convert(result, 0); err != nil {
		return nil, details, fmt.Errorf("the result: %w", err)
	}
	return result, details, nil
}
