package dynamic

import (
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/cel/environment"
)

// compilers compile the expressions of policies. A policy with variables needs an environment of its own, which is
// large; all others share one.
type compilers struct{ shared func() sharedCompiler }

func newCompilers() compilers {
	return compilers{sync.OnceValue(func() sharedCompiler {
		base := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
		return sharedCompiler{cel.NewConditionCompiler(base), cel.NewCompiler(base)}
	})}
}

// compiler compiles the expressions of one policy.
type compiler interface {
	cel.ConditionCompiler
	CompileMutatingEvaluator(cel.ExpressionAccessor, cel.OptionalVariableDeclarations, environment.Type) cel.MutatingEvaluator
}

// sharedCompiler compiles expressions without variables.
type sharedCompiler struct {
	cel.ConditionCompiler
	expressions cel.Compiler
}

// CompileMutatingEvaluator implements compiler.
func (s sharedCompiler) CompileMutatingEvaluator(expression cel.ExpressionAccessor, available cel.OptionalVariableDeclarations, mode environment.Type) cel.MutatingEvaluator {
	return cel.NewMutatingEvaluator(s.expressions.CompileCELExpression(expression, available, mode))
}

// compilerFor returns the compiler for a policy that declares variables. The second result evaluates them; it may be
// nil.
func (c compilers) compilerFor(declared []admissionregistrationv1.Variable, available cel.OptionalVariableDeclarations) (compiler, *cel.CompositedCompiler, error) {
	if len(declared) == 0 {
		return c.shared(), nil, nil
	}
	composed, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		return nil, nil, err
	}
	named := make([]cel.NamedExpressionAccessor, len(declared))
	for i, variable := range declared {
		named[i] = &validating.Variable{Name: variable.Name, Expression: variable.Expression}
	}
	composed.CompileAndStoreVariables(named, available, environment.StoredExpressions)
	return composed, composed, nil
}

func matchExpressions(conditions []admissionregistrationv1.MatchCondition) []cel.ExpressionAccessor {
	expressions := make([]cel.ExpressionAccessor, len(conditions))
	for i, condition := range conditions {
		expressions[i] = &matchconditions.MatchCondition{Name: condition.Name, Expression: condition.Expression}
	}
	return expressions
}
