package celcost

import (
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/decls"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
)

// The base environment copies the fields of StrictCostOpt and shares its slice of options, whose one element is the cost
// estimator that this package extends. The base environments are built on first use, after all packages have been
// initialized. TestTheBaseEnvironmentPricesCalls fails if that changes.
func init() { environment.StrictCostOpt.ProgramOptions[0] = ProgramOption(celconfig.PerCallLimit) }

// ProgramOption returns the option of a program that tracks its costs: it adds the costs of this package to those of
// library.CostEstimator. The evaluation ends, as at its cost limit, before a call that costs more than limit. Options
// that track costs, such as cel.CostTracking, must not follow.
func ProgramOption(limit uint64) cel.ProgramOption {
	return option(limit, cel.CustomDecoratorV2, cel.CostTracking, cel.CostTrackerOptions)
}

// program is the part of a program, whose type is not exported, that the option needs: the functions of its environment.
type program interface {
	Functions() map[string]*decls.FunctionDecl
}

// option has type parameters because it composes options of a type that has no name outside of its package.
func option[P program, O ~func(P) (P, error)](limit uint64, decorate func(interpreter.InterpretableDecoratorV2) O,
	track func(interpreter.ActualCostEstimator) O, trackOverloads func(...interpreter.CostTrackerOption) O) O {
	return func(p P) (P, error) {
		expressions := regularExpressions{sizes: map[string]int{}}
		estimate := &estimator{limit: limit, expressions: expressions}
		bound := &decorator{limit: limit, functions: p.Functions(), expressions: expressions}
		for _, apply := range []O{decorate(bound.decorate), track(estimate), trackOverloads(estimate.overloads(p.Functions())...)} {
			var err error
			if p, err = apply(p); err != nil {
				return p, err
			}
		}
		return p, nil
	}
}

// estimator counts the actual cost of calls. It implements interpreter.ActualCostEstimator.
type estimator struct {
	stock       library.CostEstimator
	limit       uint64
	expressions regularExpressions
}

// CallCost returns the cost of a call, or nil if cel-go's own cost applies.
func (e *estimator) CallCost(function, overload string, args []ref.Val, result ref.Val) *uint64 {
	stock := e.stock.CallCost(function, overload, args, result)
	price := pricerOf(function, e.expressions)
	if price == nil {
		return stock
	}
	cost := price(args, e.limit)
	if stock != nil {
		cost = max(cost, *stock)
	}
	return &cost
}

// tracked are the functions for whose overloads cel-go's libraries have cost trackers, which precede an estimator.
var tracked = []string{"slice", "lists.range", "reverse", "distinct", "flatten", "sort", "@sortByAssociatedKeys", "sets.contains", "sets.intersects", "sets.equivalent"}

// overloads replaces the cost trackers of the libraries.
func (e *estimator) overloads(functions map[string]*decls.FunctionDecl) []interpreter.CostTrackerOption {
	var options []interpreter.CostTrackerOption
	for _, name := range tracked {
		function, found := functions[name]
		if !found {
			continue
		}
		track := func(args []ref.Val, result ref.Val) *uint64 { return e.CallCost(name, "", args, result) }
		for _, overload := range function.OverloadDecls() {
			options = append(options, interpreter.OverloadCostTracker(overload.ID(), track))
		}
	}
	return options
}

// IsLimitExceeded reports whether the message of an error means that the evaluation has ended at its limit of costs or time. Kubernetes
// returns messages only.
func IsLimitExceeded(text string) bool {
	for _, part := range []string{"cost limit exceeded", "out of cost budget", "runtime cost could not be calculated", "operation interrupted"} {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}
