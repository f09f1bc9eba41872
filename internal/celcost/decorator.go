package celcost

import (
	"fmt"
	"reflect"

	"github.com/google/cel-go/common/decls"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// expensive is the cost above which a call checks the context before it runs.
const expensive = 1000

// decorator replaces the calls of a program by calls that are priced before they run.
type decorator struct {
	limit       uint64
	functions   map[string]*decls.FunctionDecl
	expressions regularExpressions
}

// decorate implements interpreter.InterpretableDecoratorV2.
func (d *decorator) decorate(step interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	call, ok := step.(interpreter.InterpretableCall)
	if !ok {
		return step, nil
	}
	price := pricerOf(call.Function(), d.expressions)
	if price == nil {
		return step, nil
	}
	run, err := d.implementation(call)
	if err != nil || run == nil {
		return step, err
	}
	if pattern, ok := constantPattern(call); ok {
		return d.withPricedText(call, run, pattern), nil
	}
	return &pricedCall{InterpretableCall: call, guard: guard{limit: d.limit, price: price}, run: run}, nil
}

// implementation returns the function of a call. It is nil for functions without an implementation, which are methods of their first
// argument.
func (d *decorator) implementation(call interpreter.InterpretableCall) (func([]ref.Val) ref.Val, error) {
	switch call.Function() {
	case operators.Equals:
		return func(args []ref.Val) ref.Val { return types.Equal(args[0], args[1]) }, nil
	case operators.NotEquals:
		return func(args []ref.Val) ref.Val { return types.Bool(types.Equal(args[0], args[1]) != types.True) }, nil
	}
	overload, err := d.overload(call)
	if err != nil || overload == nil || overload.NonStrict {
		return nil, err
	}
	run := func(args []ref.Val) ref.Val { return invoke(call, overload, args) }
	if call.Function() == operators.Add {
		return func(args []ref.Val) ref.Val { return flatten(run(args)) }, nil
	}
	return run, nil
}

// overload returns the implementation that the planner uses: that of the overload, or else of the function.
func (d *decorator) overload(call interpreter.InterpretableCall) (*functions.Overload, error) {
	function, found := d.functions[call.Function()]
	if !found {
		return nil, nil
	}
	bindings, err := function.Bindings()
	if err != nil {
		return nil, fmt.Errorf("reading the implementations of %s: %w", call.Function(), err)
	}
	var ofFunction *functions.Overload
	for _, binding := range bindings {
		switch binding.Operator {
		case call.OverloadID():
			return binding, nil
		case call.Function():
			ofFunction = binding
		}
	}
	return ofFunction, nil
}

// invoke calls an implementation like the interpreter.
func invoke(call interpreter.InterpretableCall, overload *functions.Overload, args []ref.Val) ref.Val {
	if len(args) > 0 && overload.OperandTrait != 0 && !args[0].Type().HasTrait(overload.OperandTrait) {
		if receiver, ok := args[0].(traits.Receiver); ok && args[0].Type().HasTrait(traits.ReceiverType) {
			return types.LabelErrNode(call.ID(), receiver.Receive(call.Function(), call.OverloadID(), args[1:]))
		}
		return types.NewErrWithNodeID(call.ID(), "no such overload: %s", call.Function())
	}
	switch {
	case len(args) == 1 && overload.Unary != nil:
		return types.LabelErrNode(call.ID(), overload.Unary(args[0]))
	case len(args) == 2 && overload.Binary != nil:
		return types.LabelErrNode(call.ID(), overload.Binary(args[0], args[1]))
	case overload.Function != nil:
		return types.LabelErrNode(call.ID(), overload.Function(args...))
	}
	return types.NewErrWithNodeID(call.ID(), "no such overload: %s", call.Function())
}

// concatenation is the type of a list that references the two lists that it consists of. Each access searches them.
var concatenation = func() reflect.Type {
	one := types.NewRefValList(types.DefaultTypeAdapter, []ref.Val{types.True})
	return reflect.TypeOf(one.(traits.Adder).Add(one))
}()

// flatten returns a list that contains all elements of a concatenation itself, and other values unchanged.
func flatten(value ref.Val) ref.Val {
	if reflect.TypeOf(value) != concatenation {
		return value
	}
	elements := make([]ref.Val, 0, shallow(value))
	for it := value.(traits.Lister).Iterator(); it.HasNext() == types.True; {
		elements = append(elements, it.Next())
	}
	return types.NewRefValList(types.DefaultTypeAdapter, elements)
}

// guard ends an evaluation before a call that costs too much, or after the request has ended.
type guard struct {
	limit uint64
	price pricer
}

// check returns an error if the context has ended. It panics like the interpreter at its cost limit, because operators may ignore errors
// of their operands and continue.
func (g guard) check(frame *interpreter.ExecutionFrame, args []ref.Val) ref.Val {
	cost := g.price(args, g.limit)
	if cost > g.limit {
		panic(interpreter.EvalCancelledError{Cause: interpreter.CostLimitExceeded, Message: "operation cancelled: actual cost limit exceeded"})
	}
	if cost >= expensive && interrupted(frame) {
		return types.WrapErr(interpreter.InterruptError{})
	}
	return nil
}

// interrupted reports whether the context has ended. A frame reads it once in CheckFrequency checks.
func interrupted(frame *interpreter.ExecutionFrame) bool {
	for range celconfig.CheckFrequency {
		if frame.CheckInterrupt() {
			return true
		}
	}
	return false
}

// pricedCall is a call that is priced before it runs.
type pricedCall struct {
	interpreter.InterpretableCall
	guard
	run func([]ref.Val) ref.Val
}

// Exec implements interpreter.InterpretableV2.
func (c *pricedCall) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	steps := c.Args()
	args := make([]ref.Val, len(steps))
	var unknown *types.Unknown
	for i, step := range steps {
		args[i] = step.Exec(frame)
		if types.IsError(args[i]) {
			return args[i]
		}
		unknown, _ = types.MaybeMergeUnknowns(args[i], unknown)
	}
	if unknown != nil {
		return unknown
	}
	if err := c.check(frame, args); err != nil {
		return err
	}
	return c.run(args)
}

// Eval implements interpreter.Interpretable.
func (c *pricedCall) Eval(vars interpreter.Activation) ref.Val {
	return c.Exec(interpreter.AsFrame(vars))
}

// constantPattern returns the regular expression of a call, if it is a constant.
func constantPattern(call interpreter.InterpretableCall) (types.String, bool) {
	args := call.Args()
	if !matching[call.Function()] || len(args) < 2 {
		return "", false
	}
	constant, ok := args[1].(interpreter.InterpretableConst)
	if !ok {
		return "", false
	}
	pattern, ok := constant.Value().(types.String)
	return pattern, ok
}

// withPricedText returns a call of a constant regular expression with a priced text. The interpreter replaces the call by one of the
// compiled expression with the same arguments.
func (d *decorator) withPricedText(call interpreter.InterpretableCall, run func([]ref.Val) ref.Val, pattern types.String) interpreter.InterpretableV2 {
	d.expressions.sizes[string(pattern)] = programSize(string(pattern))
	args := append([]interpreter.InterpretableV2{}, call.Args()...)
	price := func(text []ref.Val, limit uint64) uint64 {
		return d.expressions.price([]ref.Val{text[0], pattern}, limit)
	}
	args[0] = &pricedArgument{InterpretableV2: args[0], guard: guard{limit: d.limit, price: price}}
	return interpreter.NewCall(call.ID(), call.Function(), call.OverloadID(), args, func(values ...ref.Val) ref.Val { return run(values) })
}

// pricedArgument is the argument that determines the cost of a call.
type pricedArgument struct {
	interpreter.InterpretableV2
	guard
}

// Exec implements interpreter.InterpretableV2.
func (a *pricedArgument) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	value := a.InterpretableV2.Exec(frame)
	if types.IsUnknownOrError(value) {
		return value
	}
	if err := a.check(frame, []ref.Val{value}); err != nil {
		return err
	}
	return value
}

// Eval implements interpreter.Interpretable.
func (a *pricedArgument) Eval(vars interpreter.Activation) ref.Val {
	return a.Exec(interpreter.AsFrame(vars))
}
